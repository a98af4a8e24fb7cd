"""The panel GEMM against float64 products of the very values that the file means."""

from __future__ import annotations

import pytest
import torch

from kernels import reference
from kernels.cpu import gemm
from kernels.errors import KernelError
from kernels.weights import FLOAT, RawWeight
from kv_builders import backend
from weight_builders import by_threads, random_rows, random_weight

ENCODINGS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1")
ROWS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 64, 97, 200)
"""Around the tile's height, half of it, and more than one block of rows."""


@pytest.fixture(autouse=True)
def _compiler() -> None:
    backend("cpu")  # skips without a compiler


def assert_product(
    y: torch.Tensor, x: torch.Tensor, dense: torch.Tensor, extra: object = 0
) -> None:
    """Within what K roundings of float32 can do: K · eps · Σ|x·w|."""
    exact = x.double() @ dense.double().T + extra
    room = x.double().abs() @ dense.double().abs().T + abs(extra)  # type: ignore[arg-type]
    bound = (x.shape[1] + 2) * torch.finfo(torch.float32).eps / 2 * room
    assert y.shape == exact.shape
    assert y.dtype == torch.float32
    assert ((y - exact).abs() <= bound).all()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("cols", [32, 64, 576])
@pytest.mark.parametrize("rows", [1, 15, 17, 48, 576])
def test_product_of_every_encoding_and_shape(encoding: str, rows: int, cols: int) -> None:
    weight = random_weight(encoding, rows, cols)
    packed, dense = gemm.pack(weight), weight.dequantise()
    for t in (0, 1, 5, 64):
        x = random_rows(t, cols)
        assert_product(gemm.linear(x, packed), x, dense)


@pytest.mark.parametrize("encoding", list(FLOAT))
@pytest.mark.parametrize("cols", [1, 2, 33, 193, 577])
def test_float_weights_of_any_width(encoding: str, cols: int) -> None:
    weight = random_weight(encoding, 21, cols)
    packed = gemm.pack(weight)
    for t in (1, 7):
        x = random_rows(t, cols)
        assert_product(gemm.linear(x, packed), x, weight.dequantise())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_row_alone_equals_the_row_in_any_batch_to_the_bit(encoding: str) -> None:
    packed, x = gemm.pack(random_weight(encoding, 83, 608)), random_rows(max(ROWS), 608)
    alone = torch.cat([gemm.linear(x[i : i + 1], packed) for i in range(len(x))])
    for t in ROWS:
        assert torch.equal(gemm.linear(x[:t], packed), alone[:t]), t
        assert torch.equal(gemm.linear(x[len(x) - t :], packed), alone[len(x) - t :]), t


@pytest.mark.parametrize("t", [2, 40])
def test_threads_do_not_change_a_bit(t: int) -> None:
    packed, x = gemm.pack(random_weight("q4_1", 200, 576)), random_rows(t, 576)
    results = by_threads(lambda: gemm.linear(x, packed))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("t", [2, 40])
def test_bias_and_residual(t: int) -> None:
    weight = random_weight("q8_0", 37, 96)
    packed, dense, x = gemm.pack(weight), weight.dequantise(), random_rows(t, 96)
    bias, residual = torch.randn(37), torch.randn(t, 37)
    assert_product(gemm.linear(x, packed, bias), x, dense, bias)
    plain, sums = gemm.linear(x, packed), residual.clone()
    returned = gemm.linear(x, packed, residual=sums)
    assert returned.data_ptr() == sums.data_ptr()
    assert torch.equal(sums, plain + residual)
    both = gemm.linear(x, packed, bias, residual.clone())
    assert torch.equal(both, plain + bias + residual)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_embedding_returns_the_exact_rows(encoding: str) -> None:
    weight = random_weight(encoding, 37, 96)
    tokens = torch.tensor([36, 0, 15, 16, 36, 31])
    embedded = gemm.embed(gemm.pack(weight), tokens)
    assert torch.equal(embedded, reference.embed(weight.dequantise(), tokens))
    assert gemm.embed(gemm.pack(weight), tokens[:0]).shape == (0, 96)


def test_float16_extremes_keep_their_value() -> None:
    every = torch.arange(65536).to(torch.uint16).view(torch.float16)
    every = every[~every.isnan()].unsqueeze(1).repeat(1, 2)
    embedded = gemm.embed(gemm.pack(RawWeight.dense(every)), torch.arange(len(every)))
    assert torch.equal(embedded, every.float())
    nan = gemm.pack(RawWeight.dense(torch.full((1, 2), torch.nan, dtype=torch.float16)))
    assert gemm.embed(nan, torch.tensor([0])).isnan().all()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_packed_weight_keeps_the_bytes_of_its_file(encoding: str) -> None:
    weight = random_weight(encoding, 64, 96)
    assert gemm.pack(weight).nbytes == weight.nbytes


def test_rows_that_the_file_pads_are_packed_too() -> None:
    wide = random_weight("f32", 20, 80)
    narrow = RawWeight("f32", 20, 64, wide.data[:, :64])
    x = random_rows(3, 64)
    assert_product(gemm.linear(x, gemm.pack(narrow)), x, wide.data[:, :64])


def test_what_does_not_fit_is_refused() -> None:
    packed = gemm.pack(random_weight("f32", 16, 64))
    x = torch.zeros(2, 64)
    wrong = [x[:, :32], x.double(), torch.zeros(64, 2).T, torch.zeros(64)]
    for bad in wrong:
        with pytest.raises(KernelError, match="x: expected contiguous float32"):
            gemm.linear(bad, packed)
    with pytest.raises(KernelError, match=r"bias: .*\[16\], got .*\[15\]"):
        gemm.linear(x, packed, bias=torch.zeros(15))
    with pytest.raises(KernelError, match="residual"):
        gemm.linear(x, packed, residual=torch.zeros(2, 15))
    for token in (-1, 16):
        with pytest.raises(KernelError, match="tokens must be in 0…15"):
            gemm.embed(packed, torch.tensor([0, token]))
    with pytest.raises(KernelError, match="blocks of 32"):
        gemm.pack(RawWeight("q8_0", 1, 33, torch.zeros(1, 34, dtype=torch.uint8)))
    with pytest.raises(KernelError, match="'q6_k' is not one of"):
        gemm.pack(RawWeight("q6_k", 1, 256, torch.zeros(1, 210, dtype=torch.uint8)))
