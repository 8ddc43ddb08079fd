"""How kernels are compiled, and where the result is kept.

Python calls the entry points, which are cached on disk; kernels exist only inside them. numba does not notice when a
callee in another file changes, so `cache_key.py` names the cache folder after everything that shapes the machine code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from numba import config, njit, typeof, types
from numba.core import event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import IRLegalization

from llmserve_env.engine.kernels.cache_key import cache_key

JIT_IS_OFF = bool(config.DISABLE_JIT)
KERNELS: list[str] = []
"""Names of all kernels and entry points that have been imported."""
_MACHINE_CODE: dict[Any, Callable[..., Any]] = {}


def cache_folder() -> Path:
    """Compiled kernels live under NUMBA_CACHE_DIR, or the user's cache."""
    base = (
        os.environ.get("NUMBA_CACHE_DIR")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmserve_env"
    )
    return Path(base) / f"kernels-{cache_key()}"


config.CACHE_DIR = str(cache_folder())
if JIT_IS_OFF:
    # Interpreted kernels wrap unsigned integers as compiled ones do, without a warning.
    np.seterr(over="ignore")


class _KernelLibrary(JITCodeLibrary):
    """The code of a kernel, as it was lowered. Entry points link it in; it has no machine code of its own.

    numba would optimise and emit every function by itself, and then once more inside each of its callers. Leaving all
    of it to the entry points halves the time to compile.
    """

    @property
    def codegen(self):
        return _NoMachineCode

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        self._ensure_finalized()
        return 0


class _NoMachineCode:
    """Do nothing. numba sets the globals of machine code here, and a kernel has no machine code."""

    @staticmethod
    def set_env(name, environment):
        pass


class _EntryPointLibrary(JITCodeLibrary):
    """An entry point with all its kernels. The second round of optimisation makes the simulator 5 % faster."""

    def __init__(self, codegen, name):
        super().__init__(codegen, name)
        self.enable_object_caching()

    def _optimize_final_module(self):
        super()._optimize_final_module()
        super()._optimize_final_module()


@register_pass(mutates_CFG=False, analysis_only=True)
class _ChooseLibrary(AnalysisPass):
    """Choose, before a function is lowered, the library that holds its code."""

    _name = "choose_library"

    def __init__(self):
        AnalysisPass.__init__(self)

    def run_pass(self, state):
        library = _KernelLibrary if state.flags.no_cpython_wrapper else _EntryPointLibrary
        state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class _Compiler(CompilerBase):
    """numba's own pipeline for compiled functions, with the choice of a library added."""

    def define_pipelines(self):
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_ChooseLibrary, IRLegalization)
        passes.finalize()
        return [passes]


# `_nrt` off: counting references on every view costs more than the simulation itself, and the caller of an entry point
# holds the arrays.
_OPTIONS = {"no_cfunc_wrapper": True, "_nrt": False, "pipeline_class": _Compiler}


def _compiled(function, **options):
    KERNELS.append(function.__qualname__)
    dispatcher = njit(**_OPTIONS, **options)(function)
    if not JIT_IS_OFF:
        # Without this, numba compiles a function again for each constant that it is called with.
        resolve = dispatcher.get_call_template
        dispatcher.get_call_template = lambda args, kwargs: resolve([types.unliteral(arg) for arg in args], kwargs)
    return dispatcher


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function of the hot path: inlined, because passing the arrays costs more than most functions do."""
    return _compiled(function, forceinline=True, no_cpython_wrapper=True)


def rare_kernel(function: Callable[..., Any]) -> Any:
    """Compile a function off the hot path: called, which keeps compile time down."""
    return _compiled(function, no_cpython_wrapper=True)


def entry_point(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls, with all kernels it uses, and keep the machine code on disk."""
    return _compiled(function, cache=True, nogil=True)


def machine_code(function: Any, *arguments: Any) -> Callable[..., Any]:
    """The compiled function behind an entry point, for a caller whose argument types never change.

    Calling the entry point itself makes numba inspect the types of all arrays, which can take as long as a window.
    """
    if JIT_IS_OFF:
        return cast(Callable[..., Any], function)
    if function not in _MACHINE_CODE:
        signature = tuple(typeof(argument) for argument in arguments)
        function.compile(signature)
        _MACHINE_CODE[function] = function.overloads[signature].entry_point
    return _MACHINE_CODE[function]


def is_compiled(*entry_points: Any) -> bool:
    """Whether these are in the cache on disk, for this version and machine, so that their first call is quick."""
    # numba's index is empty where its own checks (version, source file) refuse what is in the cache.
    return JIT_IS_OFF or all(function._cache._cache_file._load_index() for function in entry_points)


@contextmanager
def compiled_kernels_reported(report: Callable[[str], None]) -> Iterator[None]:
    """Call `report` with the name of each kernel that this process compiles."""

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            pass

        def on_end(self, event: Any) -> None:
            # numba compiles some of its library's functions along the way.
            name = event.data["dispatcher"].py_func.__qualname__
            if name in KERNELS:
                report(name)

    with event.install_listener("numba:compile", Listener()):
        yield
