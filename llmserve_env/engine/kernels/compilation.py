"""How kernels are compiled, and where the result is kept.

Only entry points are cached. numba does not notice when a callee in another file changes, so the cache folder is named
after the sources themselves: edited kernels never meet stale machine code.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import IRLegalization


def source_digest() -> str:
    """Digest of everything that shapes the machine code."""
    engine = Path(__file__).parent.parent
    sources = sorted(
        [
            *engine.glob("kernels/*.py"),
            engine / "layout.py",
            engine / "state.py",
            engine / "costs.py",
            engine / "deployment.py",
        ]
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def cache_folder() -> Path:
    """Compiled kernels live under NUMBA_CACHE_DIR, or the user's cache."""
    base = (
        os.environ.get("NUMBA_CACHE_DIR")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmserve_env"
    )
    return Path(base) / f"kernels-{source_digest()}"


config.CACHE_DIR = str(cache_folder())
if config.DISABLE_JIT:
    # Interpreted kernels wrap unsigned integers as compiled ones do, without a warning.
    np.seterr(over="ignore")



class _LinkedLibrary(JITCodeLibrary):
    """The code of a kernel, as it was lowered. Callers link it in; it has no machine code of its own.

    numba optimises and emits every function by itself and then once more inside each of its callers. Entry points are
    all that Python calls, so leaving everything to them halves the time to compile.
    """

    @property
    def codegen(self):
        """numba tells the machine code where the function's Python globals are; there is none to tell."""
        return _WithoutMachineCode

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        self._ensure_finalized()
        return 0


class _WithoutMachineCode:
    @staticmethod
    def set_env(name, environment):
        pass


@register_pass(mutates_CFG=False, analysis_only=True)
class _UseLinkedLibrary(AnalysisPass):
    _name = "use_linked_library"

    def __init__(self):
        AnalysisPass.__init__(self)

    def run_pass(self, state):
        state.library = _LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class _KernelCompiler(CompilerBase):
    def define_pipelines(self):
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_UseLinkedLibrary, IRLegalization)
        passes.finalize()
        return [passes]


_ENTRY = {"no_cfunc_wrapper": True, "_nrt": False}
_INNER = {**_ENTRY, "no_cpython_wrapper": True, "pipeline_class": _KernelCompiler}
kernel: Any = njit(forceinline=True, **_INNER)
"""On the hot path: inlined, because passing the arrays costs more than most of these functions do."""
rare_kernel: Any = njit(**_INNER)
"""Off the hot path: called, which keeps compile time down."""
entry_point: Any = njit(cache=True, nogil=True, **_ENTRY)


def is_compiled() -> bool:
    """Whether the entry points are in the cache, so that the first call is quick."""
    return bool(config.DISABLE_JIT) or any(cache_folder().rglob("*.nbi"))
