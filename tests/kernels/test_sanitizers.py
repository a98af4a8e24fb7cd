"""Every kernel and format under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cpu.build import find_compiler
from kv_builders import backend
from repository import ROOT

DRIVER = ROOT / "tests" / "support" / "sanitizer_driver.py"


def runtime(name: str) -> str:
    """Path of a sanitizer's library; the test is skipped if the compiler has none."""
    done = subprocess.run(
        [*find_compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    path = done.stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"the compiler has no {name}")
    return path


def run(part: str) -> subprocess.CompletedProcess[str]:
    """The instrumented libraries lie in the usual cache, under names that tell them apart: they
    are built when a source has changed, and no other worker builds them again."""
    backend("cpu")  # skips without a compiler
    environment = os.environ | {
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=99",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=98",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "OMP_NUM_THREADS": "2",
    }
    command = [sys.executable, str(DRIVER), part]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_no_kernel_touches_what_is_not_its_own() -> None:
    done = run("kernels")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["done"]


def test_the_sanitizer_would_notice() -> None:
    """Without a report of an overrun the test above proves nothing."""
    done = run("overrun")
    assert done.returncode == 99
    assert "heap-buffer-overflow" in done.stderr
