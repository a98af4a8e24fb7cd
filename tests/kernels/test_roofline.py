"""The roofline's denominator: the same product from every GEMM, weighted by occurrence."""

from __future__ import annotations

import pytest
import torch

from kernels import roofline
from kernels.roofline import GemmRates, best_gemm_rate, best_integer_rate, candidates
from kernels.weights import RawWeight


def test_every_candidate_computes_the_same_product() -> None:
    x, w = torch.randn(7, 64), torch.randn(33, 64)
    expected = x.double() @ w.double().T
    gemms = candidates(RawWeight.dense(w), m=7)
    assert "torch" in gemms
    for name, gemm in gemms.items():
        torch.testing.assert_close(gemm(x).double(), expected, atol=1e-4, rtol=0, msg=name)


@pytest.mark.parametrize("encoding", ["f32", "q8_0", "q4_1"])
def test_rates_are_finite_and_the_best_is_the_largest(encoding: str) -> None:
    rates = best_gemm_rate([(48, 64), (16, 32), (48, 64)], m=8, encoding=encoding, budget_s=0)
    assert rates.best == rates.rates[rates.by] == max(rates.rates.values())
    assert all(0 < rate < 1e5 for rate in rates.rates.values())


def test_each_shape_weighs_as_often_as_it_occurs(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {(10, 10): {"torch": 1.0, "panel": 4.0}, (20, 10): {"torch": 8.0, "panel": 2.0}}
    monkeypatch.setattr(roofline, "_time", lambda shape, *_: seconds[shape])
    rates = best_gemm_rate([(10, 10), (20, 10), (10, 10)], m=5)
    flops = 2 * 5 * (10 * 10 * 2 + 20 * 10)
    assert rates.rates == {"torch": flops / 10 / 1e9, "panel": flops / 10 / 1e9}
    assert best_gemm_rate([(10, 10)], m=5) == GemmRates({"torch": 1e-6, "panel": 0.25e-6})
    assert best_gemm_rate([(20, 10)], m=5).by == "panel"


def test_without_a_compiler_the_other_gemms_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(weight: RawWeight) -> None:
        raise roofline.BuildError("no C compiler")

    monkeypatch.setattr(roofline, "_panel", refuse)
    assert set(best_gemm_rate([(16, 32)], m=4, budget_s=0).rates) <= {"torch", "onednn"}


def test_products_of_integers_have_a_limit_of_their_own() -> None:
    rates = best_integer_rate([(48, 64), (16, 32)], m=8, budget_s=0)
    assert rates is not None and rates.best == max(rates.rates.values()) > 0
    assert {"panel q8_0", "panel q4_0"} <= set(rates.rates)


def test_only_a_gemm_that_has_all_shapes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert best_integer_rate([(16, 32), (16, 33)], m=4, budget_s=0) is None
