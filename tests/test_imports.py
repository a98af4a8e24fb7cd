"""The house's import directions, and what must start without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ["kernels", "engine", "checklists", "playbooks", "console", "main"]
"""Each may import itself and those before it."""

LIGHT = [
    "snapshot",
    "request",
    "scheduling.intake",
    "scheduling.pages",
    "scheduling.scheduler",
    "config",
    "errors",
    "stream",
]
"""Modules of engine that never load torch, so that help, replay and simulation start at once."""


def modules(package):
    return sorted((ROOT / package).rglob("*.py")) if package != "main" else [ROOT / "main.py"]


def imported(path, top_level_only=False):
    """Names of modules that a file imports."""
    tree = ast.parse(path.read_text("utf-8"))
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("package", ORDER)
def test_imports_point_down_the_house(package):
    above = ORDER[ORDER.index(package) + 1 :]
    for path in modules(package):
        for name in imported(path):
            assert name.split(".")[0] not in above, f"{path.relative_to(ROOT)} imports {name}"


def test_kernels_import_nothing_of_ours_but_kernels():
    for path in modules("kernels"):
        for name in imported(path):
            assert name.split(".")[0] not in set(ORDER) - {"kernels"}, f"{path}: {name}"


@pytest.mark.parametrize("room", ["panels", "renderables"])
def test_panels_see_snapshots_and_never_an_engine(room):
    for path in modules(f"console/{room}"):
        for name in imported(path):
            assert not name.startswith("engine") or name == "engine.snapshot", f"{path}: {name}"


def loaded_after(code):
    """Modules in sys.modules after running `code` in a fresh interpreter."""
    script = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("name", LIGHT)
def test_the_light_half_of_the_engine_loads_no_torch(name):
    assert "torch" not in loaded_after(f"import engine.{name}")


def test_help_loads_neither_torch_nor_textual():
    code = (
        "import contextlib, io, sys\n"
        "sys.argv = ['evewatch', '--help']\n"
        "from console.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()"
    )
    assert not {"torch", "textual", "numpy", "rich"} & loaded_after(code)
