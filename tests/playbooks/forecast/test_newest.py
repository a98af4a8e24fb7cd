"""The requests that a fleet has, from those that arrived last."""

from random import Random

import numpy as np
import pytest

from forecasts import traffic
from playbooks.forecast.newest import newest, under_way

DAY = traffic([0.5, 0.0, 2.0])


def test_the_newest_are_the_last_that_came():
    came = list(DAY.arrivals(0.0, 7260.0))
    for count in (1, 7, 100, 400):
        assert list(newest(DAY, 7260.0, count)) == came[-count:]
    assert list(newest(DAY, 7260.0, 10**6)) == came
    assert list(newest(DAY, 7260.0, 0)) == list(newest(DAY, 0.0, 5)) == []


def test_those_under_way_have_some_of_their_output_left_and_no_prompt():
    found = list(under_way(DAY, 9000.0, 2000, Random(1)))
    assert len(found) == 2000 and {one[:2] for one in found} == {(9000.0, 1)}
    lengths = np.array([one.output_tokens for one in DAY.arrivals(0.0, 9000.0)])
    left = np.array([one.output_tokens for one in found])
    assert left.min() >= 1 and left.max() <= lengths.max()
    assert left.mean() == pytest.approx((lengths**2).mean() / lengths.mean() / 2, rel=0.1)


def test_before_anybody_came_nobody_is_under_way():
    assert list(under_way(DAY, 0.0, 5, Random(1))) == []
    assert list(under_way(DAY, 9000.0, -3, Random(1))) == []
