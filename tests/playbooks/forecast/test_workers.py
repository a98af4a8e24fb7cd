"""Jobs on other processes: their results in order, and that nobody is left behind."""

import os
import time
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest

from playbooks.forecast.workers import results
from waiting import until


def _times(factor, shared):
    return shared * factor


def _nice(_):
    return os.nice(0)


def _fails(_):
    raise ValueError("of the job")


def _for_ever(folder, _):
    (folder / str(os.getpid())).touch()
    while True:
        time.sleep(60)


def _dies(_):
    os._exit(9)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("processes", [0, 2])
def test_results_come_in_the_order_of_the_jobs_and_are_counted(processes):
    told = []
    jobs = [partial(_times, n) for n in range(5)]
    found = results(10, jobs, lambda *at: told.append(at), processes)
    assert found == [0, 10, 20, 30, 40]
    assert list(dict.fromkeys(told)) == [(n, 5) for n in range(6)]


def test_they_give_way_where_that_is_asked():
    here = os.nice(0)
    assert results(None, [_nice], lambda *_: None, 1, nice=3) == [min(here + 3, 19)]


@pytest.mark.parametrize(("job", "error"), [(_fails, ValueError), (_dies, BrokenProcessPool)])
def test_what_a_job_ends_with_is_raised(job, error):
    with pytest.raises(error):
        results(None, [job], lambda *_: None, 1)


def test_whoever_asks_no_more_waits_for_no_job(tmp_path):
    def progress(done, total):
        if any(tmp_path.iterdir()):
            raise TimeoutError

    with pytest.raises(TimeoutError):
        results(None, [partial(_for_ever, tmp_path)] * 3, progress, 1)
    pids = [int(path.name) for path in tmp_path.iterdir()]
    until(lambda: not any(alive(pid) for pid in pids))
