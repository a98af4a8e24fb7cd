"""A number has one owner: series of one gauge that differ only in a label which is no replica,
rank or model are one; ranks of the same work repeat it; two models on one page are two rows.
"""

import pytest

from engine.remote.fleet.fleet import Fleet
from remote_stub import Server

PIDS = ("271", "272", "273")


def look(*lines):
    engine = Server(("\n".join(lines) + "\n").encode()).attach()
    return engine.poll()


def vllm(usage, *, running='engine="0",model_name="m"} 12', blocks=4096):
    """A page with these series of KV usage."""
    return (
        f"vllm:num_requests_running{{{running}",
        f'vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="{blocks}"}} 1',
        *usage,
    )


@pytest.mark.parametrize(
    "label", ["pid", "worker", "worker_id", "api_server", "api_server_index", "WorkerId", "process",
              "client_index", "thread"]
)  # fmt: skip
@pytest.mark.parametrize("name", ["kv_cache_usage_perc", "gpu_cache_usage_perc"])
def test_a_gauge_once_a_process_is_one_gauge(label, name):
    series = [
        f'vllm:{name}{{engine="0",model_name="m",{label}="{n}"}} {0.92 if n == "272" else 0.0}'
        for n in PIDS
    ]
    s = look(*vllm(series))
    assert (s.kv.usage, s.kv.total, s.engine.note) == (0.92, 4096, None)


def test_counts_once_a_process_are_one_count():
    lines = [f'vllm:num_requests_running{{engine="0",pid="{n}"}} {n == "273" and 12}' for n in PIDS]
    lines = [line.replace("False", "0") for line in lines]
    assert look(*lines).batch.running == 12


def test_where_the_page_says_when_the_newest_counts():
    lines = [
        'vllm:num_requests_running{engine="0",pid="1"} 9 1700000000000',
        'vllm:num_requests_running{engine="0",pid="2"} 4 1700000500000',
    ]
    assert look(*lines).batch.running == 4
    assert look(lines[0], lines[1].rsplit(" ", 1)[0]).batch.running == 9  # one has no time


def test_a_dead_process_without_a_number_takes_none_away():
    series = ['vllm:kv_cache_usage_perc{pid="1"} NaN', 'vllm:kv_cache_usage_perc{pid="2"} 0.5']
    assert look(*vllm(series)).kv.usage == 0.5


@pytest.mark.parametrize(
    "label", ["engine", "dp_rank", "instance", "pod", "replica", "ReplicaId", "worker_addr", "node"]
)
def test_replicas_and_data_parallel_ranks_add_up(label):
    lines = [f'sglang:num_running_reqs{{model_name="m",{label}="{n}"}} 4' for n in "01"]
    lines += [f'sglang:token_usage{{model_name="m",{label}="{n}"}} 0.{n}5' for n in "01"]
    lines += [f'sglang:max_total_num_tokens{{model_name="m",{label}="{n}"}} 1000' for n in "01"]
    s = look(*lines)
    assert (s.batch.running, s.kv.total) == (8, 2000)
    assert s.kv.usage == pytest.approx(0.1)


@pytest.mark.parametrize("label", ["tp_rank", "pp_rank", "moe_ep_rank", "rank", "local_rank"])
def test_ranks_of_the_same_work_are_one(label):
    lines = [f'sglang:num_running_reqs{{model_name="m",{label}="{n}"}} 4' for n in "0123"]
    lines += [f'sglang:token_usage{{model_name="m",{label}="{n}"}} 0.5' for n in "0123"]
    lines += [f'sglang:max_total_num_tokens{{model_name="m",{label}="{n}"}} 1000' for n in "0123"]
    s = look(*lines)
    assert (s.batch.running, s.kv.usage, s.kv.total) == (4, 0.5, 1000)


def test_data_parallel_engines_each_with_several_processes():
    series = [
        f'vllm:kv_cache_usage_perc{{engine="{e}",model_name="m",pid="{p}"}} '
        f"{0.2 + 0.4 * e if p == '272' else 0}"
        for e in (0, 1)
        for p in PIDS
    ]
    lines = [f'vllm:num_requests_running{{engine="{e}",model_name="m"}} 3' for e in (0, 1)]
    lines += [
        f'vllm:cache_config_info{{engine="{e}",block_size="16",num_gpu_blocks="100"}} 1'
        for e in (0, 1)
    ]
    s = look(*lines, *series)
    assert (s.batch.running, s.kv.total) == (6, 200)
    assert s.kv.usage == pytest.approx(0.4)


def test_two_instances_with_the_same_rank_have_their_own_sizes():
    lines = []
    for instance, usage, blocks in (("a", 0.8, 100), ("b", 0.2, 300)):
        labels = f'engine="0",instance="{instance}:8000"'
        lines += [
            f"vllm:kv_cache_usage_perc{{{labels}}} {usage}",
            f'vllm:cache_config_info{{{labels},block_size="16",num_gpu_blocks="{blocks}"}} 1',
        ]
    s = look(*lines)
    assert s.kv.total == 400
    assert s.kv.usage == pytest.approx((80 + 60) / 400)


def test_reasons_and_priorities_are_parts_and_their_total_is_not_counted_again():
    parts = [f'sglang:num_queue_reqs{{priority="{n}"}} 2' for n in "01"]
    assert look(*parts).queue.waiting == 4
    assert look(*parts, "sglang:num_queue_reqs 4").queue.waiting == 4


# --- models ------------------------------------------------------------------------------


def two_models():
    lines = []
    for model, running, usage in (("a", 5, 0.9), ("b", 2, 0.1)):
        labels = f'engine="0",model_name="{model}"'
        lines += [
            f"vllm:num_requests_running{{{labels}}} {running}",
            f"vllm:kv_cache_usage_perc{{{labels}}} {usage}",
            f"vllm:generation_tokens_total{{{labels}}} {running * 100}",
        ]
    return ("\n".join(lines) + "\n").encode()


def test_an_adapter_that_shares_the_cache_is_no_second_cache():
    s = look(
        *vllm(
            [
                'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.92',
                'vllm:kv_cache_usage_perc{engine="0",model_name="adapter"} 0.0',
            ]
        )
    )
    assert (s.kv.usage, s.kv.total, s.engine.model) == (0.92, 4096, "m")


def test_two_models_on_one_page_are_two_rows():
    several = Fleet([Server(two_models()).attach("http://h:1", name="h")])
    several.poll()
    rows = {name: engine.snapshot() for name, engine in several.engines.items()}
    assert list(rows) == ["h", "h b"]
    told = [(s.engine.model, s.batch.running, s.kv.usage, s.batch.output_tokens_total)
            for s in rows.values()]  # fmt: skip
    assert told == [("a", 5, 0.9, 500), ("b", 2, 0.1, 200)]
    assert [group.name for group in several.groups()] == ["a", "b"]
    several.poll()
    assert list(several.engines) == ["h", "h b"]


def test_alone_the_first_model_is_read_and_the_others_are_named():
    s = Server(two_models()).attach().poll()
    assert (s.engine.model, s.batch.running, s.kv.usage) == ("a", 5, 0.9)
    assert s.engine.note == "a is one of 2 models on this page"


def test_a_rank_that_is_silent_is_named_and_the_others_are_shown():
    lines = [f'vllm:kv_cache_usage_perc{{engine="{n}"}} {v}' for n, v in ((0, "NaN"), (1, 0.4))]
    s = look(*lines)
    assert s.kv.usage is None
    assert "KV usage of engine 0 is not known; engine 1 40%" in s.engine.note
