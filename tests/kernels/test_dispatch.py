"""Which backend is picked, and what it says about that."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest

from kernels import cpu, dispatch, reference
from kernels.errors import BuildError, KernelError
from kernels.layout import FORMATS, PageLayout
from kv_builders import backend

with suppress(ImportError):  # as the tests' setting says, not as a test below leaves it
    import kernels.triton  # noqa: F401


def fail() -> None:
    raise BuildError("no C compiler (tried cc)")


def test_auto_takes_the_cpu_kernels_where_they_build() -> None:
    backend("cpu")
    picked = dispatch.select()
    assert picked.name == "cpu"
    assert picked.ops.attend is cpu.attend and picked.ops.linear is cpu.linear


def test_auto_falls_back_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "prepare", fail)
    picked = dispatch.select("auto")
    assert picked.name == "reference"
    assert picked.ops.attend is reference.attend
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
def test_what_cannot_run_is_refused_in_one_line(
    kind: str, device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(KernelError, match=message) as caught:
        dispatch.select(kind, device)
    assert "\n" not in str(caught.value)


@pytest.fixture
def without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """`import triton` fails, as where it was never installed."""
    for name in [n for n in sys.modules if n.split(".")[:2] == ["kernels", "triton"]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)


@pytest.mark.usefixtures("without_triton")
def test_cuda_without_triton_says_that_it_is_slow_and_why() -> None:
    picked = dispatch.select("auto", "cuda")
    assert picked.name == "reference" and picked.ops.attend is reference.attend
    assert picked.reason.startswith("reference kernels (slow): triton does not work on cuda")
    assert "import of triton halted" in picked.reason


@pytest.mark.usefixtures("without_triton")
@pytest.mark.parametrize(("kind", "required"), [("triton", False), ("auto", True)])
def test_triton_is_an_error_where_it_was_insisted_on(kind: str, required: bool) -> None:
    with pytest.raises(KernelError, match="import of triton halted") as caught:
        dispatch.select(kind, "cuda", require_triton=required)
    assert "\n" not in str(caught.value)


def test_a_broken_triton_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be imported, and its first kernel does not run."""
    module = pytest.importorskip("kernels.triton")

    def prepare(device: str) -> None:
        raise RuntimeError("PTX was compiled with an unsupported toolchain\nand a long trace")

    monkeypatch.setattr(module, "prepare", prepare)
    picked = dispatch.select("auto", "cuda")
    assert picked.name == "reference"
    assert picked.reason.endswith("RuntimeError: PTX was compiled with an unsupported toolchain")


def test_cuda_never_gets_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    picked = dispatch.select("auto", "cuda")
    assert picked.name == "reference" and "TRITON_INTERPRET is set" in picked.reason


def test_triton_can_be_interpreted_where_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("kernels.triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    picked = dispatch.select("triton", "cpu")
    assert picked.name == "triton" and picked.ops.attend is module.attend


def test_require_triton_contradicts_other_kernels() -> None:
    with pytest.raises(KernelError, match="kernels = cpu was asked for too"):
        dispatch.select("cpu", "cuda", require_triton=True)


def test_a_shape_that_the_kernels_do_not_take_runs_on_the_reference_with_a_word() -> None:
    """What cannot run says so before it starts."""
    picked = dispatch.Backend(cpu, "cpu kernels: asked for")
    fits, odd = (PageLayout(FORMATS["fp16"], 2, size) for size in (64, 100))
    assert picked.suited_to(fits, 4) is picked
    assert picked.suited_to(odd, 4).ops is reference
    assert picked.suited_to(odd, 4).reason.startswith("reference kernels (slow): page of 16")
    with pytest.raises(KernelError, match=r"kernels = cpu: .*head size 100.*use auto"):
        picked.suited_to(odd, 4, "cpu")
    assert dispatch.select("reference").suited_to(odd, 4, "reference").ops is reference
