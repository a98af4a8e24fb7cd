"""Products of integers: the definition against exact numbers, and C against the definition."""

from __future__ import annotations

import ctypes
import itertools
import platform
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from kernels import integer, reference
from kernels.cpu import build, gemm, native
from kernels.cpu.native import INT, POINTER, SIZE
from kernels.errors import KernelError
from kernels.weights import BLOCK, BLOCK_BYTES, RawWeight, Rounding
from kv_builders import backend
from weight_builders import by_threads, random_rows, random_weight

ENCODINGS = tuple(BLOCK_BYTES)
KEPT = (), (0,), (5, 31, 32, 64, 95)
VARIANTS = {
    "256 bits": ("-mno-avx512f",),
    "avx512bw": ("-mno-avx512vnni", "-mno-avxvnni"),
    "avx2": ("-mno-avx512f", "-mno-avxvnni"),
    "plain C": ("-mno-avx2", "-mfma"),
}
"""Flags that take the fastest instructions away: what is left has the same sums."""


@pytest.fixture(autouse=True)
def _compiler() -> None:
    backend("cpu")  # skips without a compiler


def both(
    encoding: str, rows: int, cols: int, kept: tuple[int, ...] = (), bits: int = 8
) -> tuple[RawWeight, gemm.PackedWeight, integer.IntegerWeight]:
    weight, rounding = random_weight(encoding, rows, cols), Rounding(bits, kept)
    return weight, gemm.pack(weight, rounding), integer.IntegerWeight.of(weight, rounding)


# --- the definition ------------------------------------------------------------------------


def rounded_once(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a · b + c by exact fractions; ties to the even neighbour."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), x.view(np.uint32) & 1))


def test_a_multiply_add_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, 600)).astype(np.float32)
    c *= (2.0 ** rng.integers(-40, 40, 600)).astype(np.float32)
    one = np.float32(1)
    # Sums that lie at, or a hair beside, the middle between two floats of 24 bits.
    ties = [(1 + 2**-12, 1 + 2**-12, 2.0**k) for k in range(-2, 14)]
    hairs = [(2.0**-24, s, 1.0) for s in (1.0, 1 + 2**-23, 1 - 2**-24, 3.0, 3 + 2**-22)]
    hairs += [(2.0**-24 * (1 + 2**-23), 1 + t, one) for t in (2.0**-23, -(2.0**-24), 0.0)]
    extra = np.array(ties + hairs, np.float32).T
    a, b, c = (np.concatenate(pair) for pair in zip((a, b, c), extra, strict=True))
    got = integer.fused(*map(torch.from_numpy, (a, b, c))).numpy()
    wanted = [rounded_once(*one) for one in zip(a, b, c, strict=True)]
    assert got.tolist() == wanted


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kept", KEPT)
def test_the_error_is_that_of_the_activations_alone(encoding: str, kept: tuple[int, ...]) -> None:
    """Half a step of each block's scale, for every column that is not kept."""
    weight, _, whole = both(encoding, 33, 96, kept)
    x, dense = random_rows(7, 96), weight.dequantise().double()
    x[:, 31] *= 50
    exact = x.double() @ dense.T
    rest = x.index_fill(1, torch.tensor(kept, dtype=torch.int64), 0.0).view(7, -1, BLOCK)
    half = rest.abs().amax(-1).double() / 254 * 1.0001
    room = half @ dense.view(33, -1, BLOCK).abs().sum(-1).T
    room += 1e-5 * x.abs().double() @ dense.abs().T
    error = (integer.linear(x, whole) - exact).abs()
    assert (error <= room).all()
    assert error.max() > 1e-4  # it is rounded


def test_a_column_that_stands_out_costs_its_block_no_precision_once_it_is_kept() -> None:
    weight = random_weight("q4_1", 64, 96)
    x, dense = random_rows(9, 96), weight.dequantise()
    x[:, 40] *= 200
    exact = x.double() @ dense.double().T

    def error(kept: tuple[int, ...]) -> float:
        y = integer.linear(x, integer.IntegerWeight.of(weight, Rounding(8, kept)))
        return float((y - exact).square().mean().sqrt())

    assert error((40,)) * 10 < error(())


def test_numbers_that_would_not_fit_are_counted_as_they_are() -> None:
    """Zeros, the smallest floats and the largest, each in a block of its own."""
    x = torch.zeros(1, 4 * BLOCK)
    x[0, 32], x[0, 64], x[0, 96:100] = 1e-44, 3e38, torch.tensor([-1.0, 0.5, 0.25, 1e-3])
    q, scale, sums = integer.quantise_rows(x, 8, torch.zeros(0, dtype=torch.int64))
    assert q[0, 0].count_nonzero() == 0 == q[0, 1].count_nonzero()
    assert q[0, 2, 0] == 127 and scale[0, 2] == torch.tensor(3e38) / 127
    assert q[0, 3, :4].tolist() == [-127, 64, 32, 0]  # 63.5 and 31.75, ties to even
    assert torch.equal(sums, q.sum(-1) * scale)


# --- C against it --------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kept", KEPT, ids=len)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("shape", [(1, 96), (17, 128), (83, 608)], ids=str)
def test_c_is_the_definition_to_the_bit(
    encoding: str, shape: tuple[int, int], kept: tuple[int, ...], bits: int
) -> None:
    _, packed, whole = both(encoding, *shape, kept, bits)
    for t in (0, 1, 2, 3, 5, 8, 13, 40):
        x = random_rows(t, shape[1])
        x[:, 31] *= 30
        assert torch.equal(gemm.linear(x, packed), integer.linear(x, whole)), t


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_row_alone_equals_the_row_in_any_batch_to_the_bit(encoding: str) -> None:
    _, packed, _ = both(encoding, 83, 608, (3, 77))
    x = random_rows(200, 608)
    alone = torch.cat([gemm.linear(x[i : i + 1], packed) for i in range(len(x))])
    for t in (2, 3, 6, 7, 12, 97, 200):
        assert torch.equal(gemm.linear(x[:t], packed), alone[:t]), t
        assert torch.equal(gemm.linear(x[len(x) - t :], packed), alone[len(x) - t :]), t


def test_threads_do_not_change_a_bit() -> None:
    _, packed, _ = both("q4_1", 200, 576, (1, 2))
    x = random_rows(40, 576)
    results = by_threads(lambda: gemm.linear(x, packed))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_bias_and_residual() -> None:
    _, packed, whole = both("q8_0", 37, 96, (9,))
    x, bias, residual = random_rows(5, 96), torch.randn(37), torch.randn(5, 37)
    sums = residual.clone()
    assert gemm.linear(x, packed, bias, sums) is sums
    assert torch.equal(sums, integer.linear(x, whole) + bias + residual)
    again = residual.clone()
    assert integer.linear(x, whole, bias, again) is again
    assert torch.equal(again, sums)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_embedding_from_such_a_matrix_is_exact(encoding: str) -> None:
    weight, packed, whole = both(encoding, 37, 96, (4,))
    tokens = torch.tensor([36, 0, 15, 16, 36, 31])
    assert torch.equal(gemm.embed(packed, tokens), weight.dequantise()[tokens])
    assert torch.equal(reference.embed(whole, tokens), weight.dequantise()[tokens])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("column", [33, 40])
def test_what_is_no_number_stays_none_and_in_its_row(bad: float, column: int) -> None:
    for encoding in ENCODINGS:
        _, packed, whole = both(encoding, 21, 64, (40,))
        x = random_rows(5, 64)
        x[2, column] = bad
        for out in (gemm.linear(x, packed), integer.linear(x, whole)):
            assert not out[2].isfinite().any() or column == 40
            assert not out[2].isfinite().all()
            assert out[[0, 1, 3, 4]].isfinite().all()


def test_what_has_no_such_product_is_refused() -> None:
    with pytest.raises(KernelError, match="need quantised weights, not f32"):
        gemm.pack(random_weight("f32", 16, 64), Rounding())
    for odd in (-1, 64):
        with pytest.raises(KernelError, match="some of 0…63"):
            gemm.pack(random_weight("q8_0", 16, 64), Rounding(8, (3, odd)))
        with pytest.raises(KernelError, match="some of 0…63"):
            reference.pack(random_weight("q8_0", 16, 64), Rounding(8, (3, odd)))


def test_its_bytes_are_the_file_s_and_columns_that_are_kept_add_none() -> None:
    weight, packed, whole = both("q4_1", 64, 96, (4, 5, 6))
    assert packed.nbytes == whole.nbytes == weight.nbytes


# --- other instructions ----------------------------------------------------------------------


class Product(ctypes.Structure):
    """`product` of panels.h."""

    _fields_ = [
        ("enc", INT),
        *((n, POINTER) for n in ("x", "w", "bias", "residual", "y")),
        *((n, SIZE) for n in ("n", "k")),
    ]


class Quantised(ctypes.Structure):
    """`quantised` of panels.h."""

    _fields_ = [(n, POINTER) for n in ("q", "scale", "total", "shift", "kept")]


@pytest.mark.parametrize("flags", VARIANTS.values(), ids=VARIANTS)
def test_other_instructions_have_the_same_bits(flags: tuple[str, ...], tmp_path: Path) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("flags of x86")
    target = tmp_path / "integer.so"
    build.compile_library(
        target,
        [native.source(f"{name}.c") for name in ("integer", "integer_rows")],
        {},
        (*flags, "-O0"),
    )
    library = ctypes.CDLL(str(target))
    library.integer_room.restype, library.integer_carve.restype = SIZE, Quantised
    library.integer_room.argtypes = [POINTER, SIZE]
    library.integer_carve.argtypes = [POINTER, POINTER, SIZE]
    library.quantise_row.argtypes = [POINTER, POINTER, Quantised, SIZE]
    library.integer_rows_by_panels.argtypes = [POINTER, Product, Quantised, *[SIZE] * 3, INT]
    for encoding, bits, t in itertools.product(ENCODINGS, (8, 16), (1, 2, 4, 13)):
        _, packed, whole = both(encoding, 40, 96, (5, 64), bits)
        x, y, weight = random_rows(t, 96), torch.zeros(t, 40), ctypes.byref(packed.struct)
        room = torch.zeros(library.integer_room(weight, t))
        rows = library.integer_carve(weight, room.data_ptr(), t)
        for i in range(t):
            library.quantise_row(weight, x[i].data_ptr(), rows, i)
        code = gemm.ENCODINGS.index(encoding)
        told = Product(code, x.data_ptr(), packed.data.data_ptr(), None, None, y.data_ptr(), 40, 96)
        for p in (0, 2):
            library.integer_rows_by_panels(weight, told, rows, 0, t, p, min(2, 3 - p))
        assert torch.equal(y, integer.linear(x, whole)), (encoding, bits, t)
