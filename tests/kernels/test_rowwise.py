"""RMSNorm, SiLU gating and the largest of a row, in C."""

from __future__ import annotations

import pytest
import torch

from kernels import reference
from kv_builders import backend, generator


@pytest.mark.parametrize("shape", [(1, 576), (48, 576), (3, 5), (2, 7, 64), (300, 100), (0, 64)])
def test_rms_norm_equals_the_reference(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=generator(0)) * 10
    weight = torch.rand(shape[-1], generator=generator(1)) + 0.5
    got = backend("cpu").rms_norm(x, weight, 1e-5)
    torch.testing.assert_close(got, reference.rms_norm(x, weight, 1e-5), rtol=3e-6, atol=1e-6)


def test_rms_norm_of_zeros_is_zero() -> None:
    assert torch.equal(
        backend("cpu").rms_norm(torch.zeros(2, 64), torch.ones(64), 1e-6), torch.zeros(2, 64)
    )


@pytest.mark.parametrize("shape", [(1, 3072), (48, 3072), (3, 14), (5, 2), (300, 100), (0, 64)])
def test_silu_mul_equals_the_reference(shape: tuple[int, int]) -> None:
    x = torch.randn(shape, generator=generator(0)) * 5
    torch.testing.assert_close(
        backend("cpu").silu_mul(x), reference.silu_mul(x), rtol=3e-6, atol=1e-7
    )


def test_silu_stays_finite_at_the_extremes() -> None:
    gate = torch.tensor([-1e30, -1e4, -100.0, -0.0, 0.0, 100.0, 1e4, 1e30])
    x = torch.cat((gate, torch.ones(8)))[None]
    got = backend("cpu").silu_mul(x)
    assert torch.equal(got[0, -3:], gate[-3:])
    assert (got[0, 1:5].abs() < 1e-30).all()
    assert got[0, 0].abs() <= 1e-6


@pytest.mark.parametrize("rows", [2, 100])
def test_a_row_depends_on_itself_alone(rows: int) -> None:
    run = backend("cpu")
    x = torch.randn(rows, 601, generator=generator(0))
    pair = torch.randn(rows, 2 * 301, generator=generator(1))
    weight = torch.ones(601)
    for r in (0, rows - 1):
        assert torch.equal(
            run.rms_norm(x, weight, 1e-5)[r], run.rms_norm(x[r : r + 1], weight, 1e-5)[0]
        )
        assert torch.equal(run.silu_mul(pair)[r], run.silu_mul(pair[r : r + 1])[0])


@pytest.mark.parametrize("n", [1, 5, 64, 511, 512, 513, 2000])
@pytest.mark.parametrize("rows", [0, 1, 9])
def test_argmax_equals_the_reference(rows: int, n: int) -> None:
    """Few different values: nearly every row has its largest more than once."""
    x = torch.randint(-3, 4, (rows, n), generator=generator(n)).float()
    x[1::3, n // 2 :] = -torch.inf
    x[2::3] = -torch.inf
    values, places = backend("cpu").argmax(x)
    best, first = reference.argmax(x)
    assert torch.equal(values, best)
    assert torch.equal(places, first)


@pytest.mark.parametrize("at", [0, 7, 700, 1299])
def test_argmax_takes_the_first_nan_for_the_largest(at: int) -> None:
    x = torch.randn(3, 1300, generator=generator(at))
    x[1, at:] = torch.nan
    x[1, -1] = torch.inf if at < 1299 else torch.nan
    values, places = backend("cpu").argmax(x)
    assert values.isnan().tolist() == [False, True, False]
    assert places.tolist() == [int(x[0].argmax()), at, int(x[2].argmax())]
