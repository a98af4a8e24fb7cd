"""What a check will send is said before it sends anything, and it sends no more."""

import pytest

from playbooks.outside import crosstalk, soak
from playbooks.outside.announce import announced
from playbooks.runs import spec
from playbooks.steps import models


def test_every_step_that_sends_is_counted():
    load = models.LoadStep(arrivals="closed:6", lengths="fixed:10,5", requests=40)
    sweep = models.SweepStep(batches=(1, 2, 16), repeats=2, lengths="fixed:10,5",
                             least_requests=10, requests_per_user=2)  # fmt: skip
    probe = models.QualityStep(size="probe")
    both = announced([load, sweep])
    assert announced([load]).tokens == 600
    assert announced([load], group=2).requests == announced([load]).requests + 32
    assert both.requests == 40 + 2 * (10 + 10 + 32)
    assert both.at_once == 16
    assert announced([probe]).requests == crosstalk.CLIENTS * len(crosstalk.ROUNDS)
    assert announced([models.QualityStep(size="quick")]).requests > announced([probe]).requests
    assert announced([models.EnvironmentStep(), models.ChecklistStep()]).requests == 0


def test_storms_are_announced_where_they_are_allowed():
    step = models.SoakStep(requests=32, waves=4)
    quiet, stormy = announced([step]), announced([step], disruptive=True)
    assert quiet.requests == 32 + soak.WARM_UP_WAVES * soak.AT_ONCE + 1
    more = soak.STORM + 2 * soak.REFUSED
    assert (stormy.requests, stormy.at_once) == (quiet.requests + more, soak.STORM)
    assert "disruptive: 24 clients that leave at once" in stormy.text(60.0)
    assert "disruptive" not in quiet.text(60.0)


def test_an_open_loop_says_that_more_may_be_in_flight():
    found = announced([models.LoadStep(arrivals="constant:5", lengths="fixed:10,5",
                                       duration_s=4.0)])  # fmt: skip
    assert found.requests == 20
    assert found.text(120.0) == (
        "will send about 20 requests, 300 tokens, within 2 min; as they arrive, more where "
        "arrivals are open and answers late; up to 40 where something is repeated or takes longer"
    )
    assert "without a time limit" in found.text(None)


@pytest.mark.parametrize("name", spec.names())
def test_every_playbook_that_ships_can_be_announced(name):
    assert announced([step.parameters for step in spec.load(name).steps]).requests > 0
