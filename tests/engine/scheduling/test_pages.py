import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.pages import PagePool


def test_pages_come_in_order_and_the_last_released_goes_out_first():
    pool = PagePool(4, 16)
    assert pool.allocate(3) == [0, 1, 2]
    pool.release([1])
    assert pool.allocate(2) == [1, 3]
    assert (pool.free, pool.open, pool.used, pool.peak_used) == (0, 4, 4, 4)


def test_running_out_is_an_answer_and_changes_nothing():
    pool = PagePool(3, 16)
    pool.allocate(2)
    assert pool.allocate(2) is None
    assert pool.free == 1
    pool.check_integrity()


def test_states_on_the_map():
    pool = PagePool(4, 16)
    pages = pool.allocate(3)
    pool.seal(pages[:1])
    assert pool.page_map() == "soof"
    pool.release(pages)
    assert pool.page_map() == "ffff"


def test_misuse_is_an_error():
    pool = PagePool(2, 16, slabs=1)
    (page,) = pool.allocate(1)
    pool.release([page])
    with pytest.raises(ValueError, match="released more often"):
        pool.release([page])
    with pytest.raises(ValueError, match="not open"):
        pool.seal([page])
    with pytest.raises(ValueError, match="is not out"):
        pool.return_slab(0)


def test_integrity_sees_a_lost_page_and_a_double_free():
    pool = PagePool(4, 16)
    (page,) = pool.allocate(1)
    pool._free.append(page)
    with pytest.raises(AssertionError, match="free list"):
        pool.check_integrity()
    pool = PagePool(4, 16)
    pages = pool.allocate(2)
    with pytest.raises(AssertionError, match="block tables"):
        pool.check_integrity([pages[:1]])


@given(st.lists(st.tuples(st.sampled_from("atsr"), st.integers(0, 5)), max_size=60))
def test_any_sequence_of_moves_keeps_the_pool_whole(moves):
    pool = PagePool(12, 16, slabs=3)
    held, slabs = [], []
    for move, size in moves:
        if move == "a" and (pages := pool.allocate(size)) is not None:
            held.append(pages)
        elif move == "t" and (slab := pool.take_slab()) is not None:
            slabs.append(slab)
        elif move == "s" and held:
            table = held[size % len(held)]
            pool.seal([p for p in table if pool.page_map()[p] == "o"])
        elif move == "r" and held:
            pool.release(held.pop(size % len(held)))
            if slabs:
                pool.return_slab(slabs.pop())
        pool.check_integrity(held)
    for table in held:
        pool.release(table)
    assert pool.free == pool.total
