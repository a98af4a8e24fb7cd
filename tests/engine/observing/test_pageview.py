"""Page maps by owner and age, and what a Snapshot says only while somebody looks."""

import pytest

from engine.observing import pageview
from engine.request import SamplingParams
from engine.scheduling.pages import PagePool
from engine.scheduling.shadow import ContiguousShadow
from engines import tiny_engine

SECOND = 1_000_000_000


def test_each_owner_has_a_letter_of_its_own_and_keeps_it():
    owners = pageview.Owners()
    text, names = owners.map(6, [("r-1", [0, 2]), ("r-2", [1, 2])])
    assert (text, names) == ("ab+...", {"a": "r-1", "b": "r-2"})
    text, names = owners.map(6, [("r-2", [1, 2]), ("r-3", [5])])
    assert (text, names) == (".bb..a", {"b": "r-2", "a": "r-3"})


def test_more_owners_than_letters():
    owners = pageview.Owners()
    text, names = owners.map(80, [(f"r-{i}", [i]) for i in range(80)])
    assert len(names) == len(pageview.LETTERS) == 62
    assert text.count("*") == 18 and len(set(text)) == 63


def test_ages_are_powers_of_two_seconds():
    pool = PagePool(8, 16)
    for second in (100, 97, 90, 60, 0):
        pool.now = second * SECOND
        pool.allocate(1)
    ages = pageview.ages(pool, 100 * SECOND + 500_000_000)
    assert sorted(ages.replace(".", "")) == ["0", "2", "4", "6", "7"]
    assert ages.count(".") == 3
    pool.now = 0
    assert pageview.ages(pool, 10**6 * SECOND).replace(".", "") == "99999"


def test_the_shadow_as_a_map():
    shadow = ContiguousShadow(64)
    shadow.admit("a", 20)
    shadow.admit("b", 10)
    shadow.release("a")
    assert pageview.shadow(shadow.runs(), 8, 8) == "ffssffff"


def test_a_huge_pool_is_a_short_string():
    pool = PagePool(100_000, 16)
    pages = pool.allocate(50_000)
    assert pages is not None
    stride = pageview.stride_of(pool.total)
    maps = [pageview.states(pool), pageview.ages(pool, 0)]
    maps.append(pageview.Owners().map(pool.total, [("r-1", pages)])[0])
    assert {len(text) for text in maps} == {-(-pool.total // stride)}
    assert len(maps[0]) <= pageview.MOST_LETTERS
    assert maps[0].count("o") == pytest.approx(len(maps[0]) / 2, abs=1)


def test_a_snapshot_says_whose_pages_are_only_while_somebody_looks():
    engine = tiny_engine(pages=32)
    engine.submit([1] * 20, SamplingParams(40, ignore_eos=True))
    engine.step()
    engine.step()
    engine.loop.observer.publish()
    kv = engine.snapshot().kv
    assert kv.page_map.count("f") < 32
    assert kv.page_owners is kv.page_ages is kv.owner_names is kv.shadow_map is None
    engine.watch_pages(60.0)
    engine.loop.observer.publish()
    kv = engine.snapshot().kv
    assert kv.owner_names == {"a": "r-1"}
    assert kv.page_owners.count("a") == kv.open + kv.sealed
    assert kv.page_ages.count(".") == kv.free
    assert kv.shadow_map.count("s") == 4
    engine.watch_pages(0.0)
    engine.loop.observer.publish()
    assert engine.snapshot().kv.page_owners is None
    engine.stop()


def test_what_bound_the_last_steps_adds_up_to_one():
    engine = tiny_engine(pages=32, max_batch=2)
    for _ in range(6):
        engine.submit([1] * 20, SamplingParams(8, ignore_eos=True))
    while engine.scheduler.has_work or engine.telemetry.totals["steps"] == 0:
        engine.step()
    engine.loop.observer.publish()
    snapshot = engine.snapshot()
    shares = snapshot.batch.bound_shares
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["cap"] > 0.3
    assert sum(snapshot.latency.ttft_hist.counts) == 6
    assert sum(snapshot.queue.wait_hist.counts) == 6
    pool = snapshot.memory.allocators[0]
    assert pool.name == "KV pool" and pool.reserved_bytes >= pool.allocated_bytes
    engine.stop()
