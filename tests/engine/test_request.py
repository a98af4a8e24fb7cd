import math

import pytest

from engine.errors import RequestError
from engine.request import Request, SamplingParams
from engine.stream import Stream


@pytest.mark.parametrize("value", [-1, 0, 1.5, "10", None, True, 10**9])
def test_k36_max_tokens_out_of_range_is_refused(value):
    with pytest.raises(RequestError, match="max_tokens"):
        SamplingParams(max_tokens=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_tokens", 257),
        ("seed", -1),
        ("stop", ("",)),
        ("stop_token_ids", (-5,)),
    ],
)
def test_every_other_parameter_is_checked(name, value):
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: value})


def test_one_rule_for_prefill_and_decode():
    request = Request("r", SamplingParams(), Stream("r"), prompt_ids=[5, 6, 7])
    assert (request.num_tokens, request.num_pending, request.is_prefilling) == (3, 3, True)
    request.num_computed = 3
    request.append(8)
    assert (request.num_pending, request.is_prefilling) == (1, False)
    assert request.token_ids(3, 4) == [8]
    assert request.token_ids(1, 4) == [6, 7, 8]
    request.num_computed = 0  # preempted: prompt and output are both recomputed
    assert request.num_pending == 4
    assert request.is_prefilling
