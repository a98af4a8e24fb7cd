"""A soak from outside: what must come back, and what may not rise."""

from dataclasses import replace

import pytest

from playbooks.outside.soak import IdleLook, growth

MIB = 1 << 20


def looks(**rising):
    """Ten looks, sixteen requests apart; `rising` are fields and what they gain each time."""
    first = IdleLook(0, 0, 0, 0.0, 300 * MIB, 40, others=False)
    return [
        replace(first, served=16 * i, **{k: getattr(first, k) + i * v for k, v in rising.items()})
        for i in range(10)
    ]


def test_what_comes_back_has_not_grown():
    assert growth(looks()) == []
    assert growth(looks(rss=100_000)) == []  # not enough in all to be sure


@pytest.mark.parametrize(
    ("rising", "what"),
    [
        ({"running": 2}, "requests that never end"),
        ({"kv_usage": 0.02}, "KV usage at rest"),
        ({"rss": 8 * MIB}, "resident memory"),
        ({"files": 1}, "open files"),
    ],
)
def test_what_rises_from_look_to_look_is_named(rising, what):
    (found,) = growth(looks(**rising))
    assert found.what == what
    assert found.per_request > 0


def test_one_that_stays_is_a_leak_and_others_requests_are_none():
    held = [*looks()[:-1], replace(looks()[-1], running=1)]
    assert [one.what for one in growth(held)] == ["requests that never end"]
    others = [replace(look, running=5, others=True) for look in looks()]
    assert growth(others) == []
    assert others[-1].held is None


def test_what_is_not_told_does_not_grow():
    assert (
        growth([replace(look, rss=None, kv_usage=None, files=None) for look in looks(rss=9 * MIB)])
        == []
    )
