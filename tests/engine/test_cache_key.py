"""The compile cache is named after everything that kernels freeze."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from llmserve_env.engine.kernels.cache_key import PACKAGE, digest, kernel_sources, toolchain

ROOT = Path(__file__).resolve().parents[2]
TOOLS = toolchain()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package's sources, to be changed."""
    for path in (ROOT / PACKAGE).rglob("*.py"):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return tmp_path


def key_of(root: Path) -> str:
    return digest(kernel_sources(root), TOOLS)


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")


def test_a_copy_of_the_sources_has_the_same_key(copy: Path) -> None:
    assert key_of(copy) == key_of(ROOT)


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        ("units.py", "PS_PER_MS = 10**9", "PS_PER_MS = 10**8"),
        ("rng.py", "SPECULATION_STREAM, MIX_STREAM", "MIX_STREAM, SPECULATION_STREAM"),
        ("engine/costs.py", "MAX_SPECULATION_DEPTH = 8", "MAX_SPECULATION_DEPTH = 9"),
        ("engine/layout.py", "TTFT_RING = 512", "TTFT_RING = 1024"),
        ("engine/kernels/measure.py", "SURGE_RATIO = 1.5", "SURGE_RATIO = 1.6"),
        ("env/features.py", "/ 128.0", "/ 256.0"),
        ("env/kernels.py", "0.5 * (out.ttft", "0.4 * (out.ttft"),
    ],
)
def test_a_changed_constant_changes_the_key(copy: Path, module: str, before: str, after: str) -> None:
    edit(copy / PACKAGE / module, before, after)
    assert key_of(copy) != key_of(ROOT)


def test_a_module_counts_from_the_moment_a_kernel_imports_it(copy: Path) -> None:
    new = copy / PACKAGE / "engine" / "new_constants.py"
    new.write_text("ANSWER = 41\n", encoding="utf-8")
    assert key_of(copy) == key_of(ROOT)
    imports = "from __future__ import annotations\n\nfrom llmserve_env.engine.new_constants import ANSWER\n"
    edit(copy / PACKAGE / "engine" / "kernels" / "random.py", "from __future__ import annotations\n", imports)
    with_41 = key_of(copy)
    new.write_text("ANSWER = 42\n", encoding="utf-8")
    assert len({key_of(ROOT), with_41, key_of(copy)}) == 3


def test_code_that_no_kernel_imports_does_not_count(copy: Path) -> None:
    edit(
        copy / PACKAGE / "client.py", "from __future__ import annotations\n", "from __future__ import annotations\n#\n"
    )
    assert key_of(copy) == key_of(ROOT)


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_another_version_machine_or_setting_changes_the_key(tool: str) -> None:
    sources = kernel_sources(ROOT)
    assert digest(sources, {**TOOLS, tool: "another"}) != digest(sources, TOOLS)
