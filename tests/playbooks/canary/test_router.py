"""Users stay where they are, and only ever move towards the candidate as its share grows."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playbooks.canary.router import BASELINE, CANDIDATE, Router, place

USERS = [f"user-{i}" for i in range(5000)]


def on_candidate(share, salt="a"):
    router = Router(salt, share)
    return {user for user in USERS if router.side(user) == CANDIDATE}


def test_who_is_on_the_candidate_stays_there_as_the_share_grows():
    groups = [on_candidate(share) for share in (0.0, 0.01, 0.1, 0.5, 0.99, 1.0)]
    for smaller, larger in itertools.pairwise(groups):
        assert smaller < larger
    assert groups[0] == set()
    assert groups[-1] == set(USERS)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_the_share_is_kept(share):
    spread = (share * (1 - share) / len(USERS)) ** 0.5
    assert len(on_candidate(share)) / len(USERS) == pytest.approx(share, abs=4 * spread)


def test_a_place_is_the_same_in_every_process_and_for_ever():
    assert place("user-1", "canary-0") == pytest.approx(0.2263153109, abs=1e-9)
    assert place("用户", "") == place("用户", "")


def test_another_salt_tries_it_on_other_users():
    one, other = on_candidate(0.1, "a"), on_candidate(0.1, "b")
    assert len(one & other) < 0.2 * len(one)


@given(st.text())
def test_every_user_has_a_place_below_one(user):
    assert 0 <= place(user) < 1
    assert Router("", 1.0).side(user) == CANDIDATE
    assert Router("", 0.0).side(user) == BASELINE


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_between_nothing_and_all(share):
    with pytest.raises(ValueError, match="outside"):
        Router("", share)
