"""A float matrix in blocks of whole numbers."""

from __future__ import annotations

import pytest
import torch

from kernels.weights import FLOAT, RawWeight
from weight_builders import random_weight


@pytest.mark.parametrize("encoding", list(FLOAT))
def test_a_float_matrix_in_whole_numbers_is_off_by_half_a_step(encoding: str) -> None:
    weight = random_weight(encoding, 17, 96)
    small = weight.to_q8_0()
    assert (small.encoding, small.nbytes) == ("q8_0", 17 * 3 * 34)
    step = weight.dequantise().view(17, 3, 32).abs().amax(-1, keepdim=True) / 127
    error = (small.dequantise() - weight.dequantise()).view(17, 3, 32).abs()
    assert (error <= step * 0.5 + step * 127 * 2**-11).all()
    assert error.max() > 0


def test_what_has_no_room_in_blocks_stays_as_it_is() -> None:
    narrow, huge = RawWeight.dense(torch.ones(2, 33)), RawWeight.dense(torch.full((1, 32), 1e8))
    blocks = random_weight("q4_1", 2, 32)
    for weight in (narrow, huge, blocks):
        assert weight.to_q8_0() is weight
    assert RawWeight.dense(torch.zeros(1, 32)).to_q8_0().dequantise().count_nonzero() == 0
