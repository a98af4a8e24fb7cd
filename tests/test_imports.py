"""The house: who may import whom, what starts without torch, and how full a room may be."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from repository import ROOT

ORDER = ["kernels", "engine", "checklists", "playbooks", "console", "main"]
"""Each may import itself and those before it."""

LIGHT = ["scheduling", "observing", "simulated", "remote",
         "loop", "snapshot", "request", "stream", "config", "errors", "paths"]  # fmt: skip
"""Rooms and files of engine that never load torch: help, replay and simulation start at once."""

FILES = {"engine": 9, "playbooks": 10, "console": 10}
"""At most so many files at the top of a package."""

# Known and being removed: entries go, none comes.
CIRCLES = [
    {"engine.request", "engine.stream"},
    {"checklists.book", "checklists.checks"},
]  # fmt: skip


def files_of(package: str) -> list[Path]:
    """A package's Python files, or the one file of a module."""
    folder = ROOT / package
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> frozenset[str]:
    """What a file imports, wherever in it: `from a import b` is a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


# --- directions -------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ORDER)
def test_imports_point_down_the_house(package):
    above = ORDER[ORDER.index(package) + 1 :]
    for path in files_of(package):
        for name in imported(path):
            assert name.split(".")[0] not in above, f"{path.relative_to(ROOT)} imports {name}"


def test_kernels_import_nothing_of_ours_but_kernels():
    for path in files_of("kernels"):
        for name in imported(path):
            assert name.split(".")[0] not in set(ORDER) - {"kernels"}, f"{path}: {name}"


@pytest.mark.parametrize("room", ["panels", "renderables"])
def test_panels_see_snapshots_and_never_an_engine(room):
    for path in files_of(f"console/{room}"):
        for name in imported(path):
            outside = name.split(".")[0] != "engine"
            assert outside or name.startswith("engine.snapshot."), f"{path}: {name}"


# --- circles ----------------------------------------------------------------------------------


def imports() -> dict[str, set[str]]:
    """Files to the files they import, types and functions' own imports included."""
    files = {module_name(path): path for package in ORDER for path in files_of(package)}
    graph = {}
    for name, path in files.items():
        owners = (full if full in files else full.rpartition(".")[0] for full in imported(path))
        graph[name] = {owner for owner in owners if owner in files} - {name}
    return graph


def circles(graph: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Groups of files each of which can be reached from each other."""

    def reach(start: str) -> set[str]:
        seen, left = set(), [start]
        while left:
            for other in graph[left.pop()] - seen:
                seen.add(other)
                left.append(other)
        return seen

    reached = {name: reach(name) for name in graph}
    done: set[str] = set()
    for name in graph:
        circle = {other for other in reached[name] if name in reached[other]}
        if circle and name not in done:
            done |= circle
            yield circle


def room_of(name: str) -> str | None:
    """The sub-package of a file; None at the top of a package."""
    parts = name.split(".")
    inside = len(parts) > 2 or (ROOT / Path(*parts)).is_dir()
    return ".".join(parts[:2]) if inside else None


def test_no_circle_of_imports_between_rooms():
    for circle in circles(imports()):
        rooms = {room_of(name) for name in circle}
        one_room = len(rooms) == 1 and None not in rooms
        assert one_room or any(circle <= known for known in CIRCLES), sorted(circle)


def test_a_circle_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}
    assert list(circles(graph)) == [{"b", "c"}, {"e"}]


# --- what starts without torch ------------------------------------------------------------------


def run(code: str) -> set[str]:
    """The words that `code` prints in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return set(done.stdout.split())


def first_to_load(heavy: set[str], *rooms: str) -> set[str]:
    """The file of these rooms that brings one of `heavy` in, when they are imported in turn."""
    modules = [module_name(path) for name in rooms for path in files_of(f"engine/{name}")]
    assert modules
    return run(
        "import importlib, sys\n"
        f"for name in {modules}:\n"
        "    importlib.import_module(name)\n"
        f"    if {heavy} & set(sys.modules): sys.exit(print(name))"
    )


def test_the_light_half_of_the_engine_loads_no_torch():
    assert first_to_load({"torch", "textual"}, *LIGHT) == set()


def test_watching_other_engines_loads_no_numpy_either():
    assert first_to_load({"torch", "textual", "numpy"}, "remote") == set()


def test_help_loads_neither_torch_nor_textual():
    code = (
        "import contextlib, io, sys\n"
        "sys.argv = ['evewatch', '--help']\n"
        "from console.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()\n"
        "print(*sys.modules)"
    )
    assert not {"torch", "textual", "numpy", "rich"} & run(code)


# --- rooms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", FILES)
def test_a_package_is_not_too_full(package):
    suffixes = {".py", ".tcss"}
    files = [path.name for path in (ROOT / package).iterdir() if path.suffix in suffixes]
    assert len(files) <= FILES[package], sorted(files)


def test_every_room_says_what_lives_there():
    for package in ORDER[:-1]:
        for folder in {path.parent for path in files_of(package)}:
            text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))
            first = (text or "").split("\n\n")[0]
            assert first.endswith("."), f"{folder.relative_to(ROOT)}: {first!r}"
