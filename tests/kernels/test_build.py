"""The compiler driver: cache, damage, two builders at once, no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kernels.cpu import build
from kernels.errors import BuildError
from kv_builders import backend

Home = Callable[[], list[Path]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A cache of its own; returns what is in it."""
    backend("cpu")  # skips without a compiler
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_loaded", {})
    build.find_compiler.cache_clear()
    yield lambda: sorted((tmp_path / "kernels").iterdir())
    build.find_compiler.cache_clear()


def source(tmp_path: Path, body: str = "return VALUE;") -> Path:
    path = tmp_path / "answer.c"
    path.write_text(f"int answer(void) {{ {body} }}\n")
    return path


def test_a_library_is_built_once_and_kept(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = source(tmp_path)
    assert build.load([path], {"VALUE": 42}).answer() == 42
    (kept,) = home()
    build._loaded.clear()  # as in the next process
    monkeypatch.setattr(build, "compile_library", lambda *_: pytest.fail("built again"))
    assert build.load([path], {"VALUE": 42}).answer() == 42
    assert home() == [kept]


def test_other_macros_text_or_header_make_another_library(tmp_path: Path, home: Home) -> None:
    path = source(tmp_path)
    assert build.load([path], {"VALUE": 1}).answer() == 1
    assert build.load([path], {"VALUE": 2}).answer() == 2
    assert build.load([source(tmp_path, "return 3;")], {"VALUE": 2}).answer() == 3
    (tmp_path / "changed.h").write_text("/* a header that sources may include */\n")
    build.load([path], {"VALUE": 2})
    assert len(home()) == 4


@pytest.mark.parametrize("keep", [0, 20, 1000, -1], ids=["empty", "stub", "half", "last byte"])
def test_a_damaged_library_is_rebuilt(tmp_path: Path, home: Home, keep: int) -> None:
    path = source(tmp_path)
    build.load([path], {"VALUE": 7})
    (kept,) = home()
    content = kept.read_bytes()
    kept.unlink()  # the loaded one keeps its own copy of the file
    kept.write_bytes(content[:keep])
    build._loaded.clear()
    assert build.load([path], {"VALUE": 7}).answer() == 7
    assert len(home()[0].read_bytes()) == len(content)


def test_of_processes_that_build_at_once_one_compiles(tmp_path: Path, home: Home) -> None:
    path, log, compiler = source(tmp_path), tmp_path / "log", tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {build.find_compiler()[0]} "$@"\n')
    compiler.chmod(0o755)
    code = (
        "import sys; from pathlib import Path; from kernels.cpu.build import load\n"
        f"sys.exit(load([Path({str(path)!r})], {{'VALUE': 5}}).answer())"
    )
    root, environment = Path(build.__file__).parents[2], os.environ | {"CC": str(compiler)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], cwd=root, env=environment) for _ in range(2)
    ]
    try:
        assert [process.wait() for process in running] == [5, 5]
    finally:
        for process in running:
            process.kill()
    assert len(home()) == 1, "a half-built file was left behind"
    compiled = [line for line in log.read_text().splitlines() if str(path) in line]
    assert len(compiled) == 1


def test_a_failed_build_says_why_and_leaves_nothing(tmp_path: Path, home: Home) -> None:
    with pytest.raises(BuildError, match=r"answer\.c.*undeclared") as caught:
        build.load([source(tmp_path, "return missing;")], {})
    assert "\n" not in str(caught.value)
    assert home() == []


def test_no_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(BuildError, match="install gcc"):
        build.load([source(tmp_path)], {"VALUE": 1})


def test_a_folder_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "file"))
    with pytest.raises(BuildError, match="cannot keep compiled kernels"):
        build.load([source(tmp_path)], {"VALUE": 1})


def test_the_kernels_bring_no_openmp_beside_torch_s() -> None:
    backend("cpu").silu_mul(torch.ones(1, 16))
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        pytest.skip("no /proc here")
    mapped = {line.split()[-1] for line in maps.splitlines() if "libgomp" in line}
    assert len(mapped) == 1
    assert "torch" in mapped.pop()


def test_denormals_survive_the_kernels() -> None:
    backend("cpu").silu_mul(torch.ones(1, 16))
    assert float(torch.tensor(1e-40) * 0.5) > 0


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "2000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "")],
)
def test_idle_threads_give_way_unless_told_otherwise(given: dict[str, str], spins: str) -> None:
    clean = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    code = (
        "import kernels, os, sys\n"
        "print(os.environ.get('GOMP_SPINCOUNT', ''), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(build.__file__).parents[2],
        env=clean | given,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{spins} False".strip()
