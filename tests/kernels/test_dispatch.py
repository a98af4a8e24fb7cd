"""Which backend is picked, and what it says about that."""

from __future__ import annotations

import pytest
from kv_builders import backend

from kernels import cpu, dispatch, reference
from kernels.errors import BuildError, KernelError


def fail() -> None:
    raise BuildError("no C compiler (tried cc)")


def test_auto_takes_the_cpu_kernels_where_they_build() -> None:
    backend("cpu")
    picked = dispatch.select()
    assert picked.name == "cpu"
    assert picked.attend is cpu.attend and picked.linear is cpu.linear


def test_auto_falls_back_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "prepare", fail)
    picked = dispatch.select("auto")
    assert picked.name == "reference"
    assert picked.attend is reference.attend
    assert "no C compiler" in picked.reason


def test_cpu_is_an_error_where_it_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "prepare", fail)
    with pytest.raises(KernelError, match="no C compiler"):
        dispatch.select("cpu")


def test_reference_can_be_asked_for() -> None:
    assert dispatch.select("reference").name == "reference"
    assert dispatch.select("reference", "cuda").name == "reference"


@pytest.mark.parametrize(
    ("kind", "device", "message"),
    [
        ("triton", "cpu", "use auto"),
        ("fast", "cpu", "not one of auto"),
        ("cpu", "cuda", "cannot run on cuda"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(kind: str, device: str, message: str) -> None:
    with pytest.raises(KernelError, match=message) as caught:
        dispatch.select(kind, device)
    assert "\n" not in str(caught.value)


def test_another_device_gets_the_reference() -> None:
    picked = dispatch.select("auto", "cuda")
    assert picked.name == "reference" and "cuda" in picked.reason
