"""Panels in depth: histograms, shares, page maps by owner and age, allocators, the machine."""

import re
from dataclasses import replace

import pytest

from console.renderables import batch, kv, latency, machine, queue
from console.renderables.graphs import histogram
from console.renderables.lines import beside, plain, text_line, width_of
from console.renderables.screen_state import ScreenState
from engine.snapshot import (
    AllocatorState,
    BatchState,
    GpuState,
    Histogram,
    KvState,
    MemoryState,
    Percentiles,
    QueueState,
    Snapshot,
    StageShares,
)

GIB = 1 << 30
GPU = GpuState(
    0, "NVIDIA H200", 0.87, 0.45, 92 * GIB, 141 * GIB, 512.0, 700.0, 1755, 1980, 3201, 61.0, ()
)


def text(lines):
    return "\n".join(plain(line) for line in lines)


def shown(**sections):
    return ScreenState(Snapshot(**sections))


# --- histograms ------------------------------------------------------------------------------


def test_a_histogram_has_axes_and_units():
    found = Histogram((1.0, 10.0, 100.0, 1000.0), (0, 5, 20, 1, 0))
    lines = histogram("TTFT", found, 50, 7)
    drawn = text(lines)
    assert len(lines) == 7 and all(width_of(line) <= 50 for line in lines)
    assert drawn.splitlines()[0].split() == ["TTFT", "n", "26"]
    assert drawn.splitlines()[1].lstrip().startswith("20│")
    assert drawn.splitlines()[-2].lstrip().startswith("0│")
    assert drawn.splitlines()[-1].split() == ["└1.0", "ms", "10", "ms", "100", "ms", "1.0", "s"]
    columns = drawn.splitlines()[-2].partition("│")[2]
    assert columns.count(" ") <= 3  # every bucket in between shows something


def test_the_first_bucket_of_a_source_that_sees_no_less():
    drawn = text(histogram("E2E", Histogram((300.0, 500.0), (7, 1, 0)), 40, 6))
    assert "< 300 ms" in drawn


@pytest.mark.parametrize("found", [None, Histogram(), Histogram((1.0,), (0, 0))])
def test_no_samples_are_no_columns(found):
    drawn = text(histogram("TTFT", found, 40, 7))
    assert "no samples" in drawn and not re.search(r"\d", drawn.replace("TTFT", ""))


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
@pytest.mark.parametrize("width", [12, 20, 38, 100])
def test_a_histogram_fits_everywhere(rows, width):
    edges = tuple(float(2**i) for i in range(30))
    lines = histogram("ITL", Histogram(edges, tuple(range(1, 32))), width, rows)
    assert len(lines) <= rows and all(width_of(line) <= width for line in lines)


# --- queue and batch ---------------------------------------------------------------------------


def test_waiting_is_most_of_the_latency_or_not():
    most = text([queue.diagnosis(Snapshot(stages=StageShares(queue=0.7, decode=0.3)))])
    assert most.startswith("▲ waiting is most of the latency (70 % of request time)")
    some = text([queue.diagnosis(Snapshot(stages=StageShares(queue=0.1, decode=0.9)))])
    assert some == "waiting is not most of the latency (10 % of request time)"
    remote = Snapshot(queue=QueueState(wait_ms=Percentiles(80.0)))
    assert "not known" in text([queue.diagnosis(remote)])


def test_the_limits_of_the_last_minute_are_fractions():
    shares = {"cap": 0.29, "kv": 0.71}
    state = BatchState(bound_by="cap", bound_shares=shares)
    drawn = text(batch.bounds(state, 50)).splitlines()
    assert drawn[1].split()[0] == "KV" and drawn[1].endswith("71 %")
    assert drawn[2].split()[0] == "cap" and drawn[2].endswith("29 %")
    field = next(f for f in batch.fields(shown(batch=state)) if f.label == "bound by")
    assert field.value == "KV 71 %" and field.trouble
    assert "not reported" in text(batch.bounds(BatchState(), 50))


def test_what_is_predicted_says_how_well_it_holds():
    def drawn(**state):
        fields = batch.fields(shown(batch=BatchState(**state)))
        return next(((f.value, f.trouble) for f in fields if f.label == "as predicted"), None)

    assert drawn() is None
    assert drawn(predicting=True) == ("–", False)
    assert drawn(predicting=True, length_coverage=0.81) == ("81 %", False)
    assert drawn(predicting=False, length_coverage=0.52) == ("52 %", True)


# --- KV ----------------------------------------------------------------------------------------

POOL = KvState(
    total=8, free=2, open=1, sealed=4, cached=1, usage=0.625, page_map="ssosscff",
    pages_per_letter=1, page_owners="aab+b...", owner_names={"a": "r-1", "b": "r-22"},
    page_ages="0139......"[:8], shadow_map="ssssssff", shadow_fragmentation=0.5,
    largest_fit_tokens=48, shadow_largest_fit_tokens=16,
)  # fmt: skip


@pytest.mark.parametrize("size", [(116, 36), (78, 21)])
def test_the_pool_by_state_owner_and_age(size):
    drawn = text(kv.detail(shown(kv=POOL), *size))
    assert "■ ■ ▣ ■ ■ ▒ · ·" in drawn
    assert "a a b + b · · ·" in drawn
    assert "a r-1 2" in drawn and "b r-22 2" in drawn and "+ shared" in drawn
    assert "█ ▓ ▓ ░" in drawn
    assert "48 tok in pages, 16 tok" in drawn


def test_the_contiguous_shadow_stands_beside_the_pages():
    rows = text(kv.detail(shown(kv=POOL), 116, 36)).splitlines()
    first = next(row for row in rows if "▣" in row and "■" in row and "sealed" not in row)
    left, right = first[:56], first[59:]
    assert left.split() == ["■", "■", "▣", "■", "■", "▒", "·", "·"]
    assert right.split() == ["■"] * 6 + ["·"] * 2
    assert "in contiguous blocks instead: 50 % fragmented" in rows[0]


def test_owners_that_nobody_asked_for_are_not_made_up():
    drawn = text(kv.detail(shown(kv=replace(POOL, page_owners=None, page_ages=None)), 116, 36))
    assert drawn.count("not reported, or not yet") == 2


def test_a_letter_that_stands_for_pages_is_said():
    kv_state = replace(POOL, pages_per_letter=4)
    assert "a cell: most of 4 pages" in text(kv.overview(shown(kv=kv_state), 116, 12))


# --- allocators and the machine ------------------------------------------------------------------


def test_allocators_show_what_lies_idle():
    """Case K14: out of memory while hundreds of MiB are reserved and not allocated."""
    states = [AllocatorState("torch CUDA", 10 * GIB, 9 * GIB, 8 * GIB), AllocatorState("C heap")]
    rows = text(machine.allocator_table(states, 78)).splitlines()
    assert rows[0].split() == ["memory", "reserved", "allocated", "active", "idle"]
    assert " ".join(rows[1].split()) == "torch CUDA 10.0 GiB 9.0 GiB 8.0 GiB 1.0 GiB"
    assert rows[2].split() == ["C", "heap", "–", "–", "–", "–"]
    assert "not reported" in text(machine.allocator_table(None, 78))


def test_a_gpu_takes_the_place_of_the_processor():
    drawn = text(machine.overview(shown(gpus=(GPU,)), 33, 9))
    for words in ("NVIDIA H200", "87 %", "92.0 GiB of 141 GiB", "512 of 700 W", "61 °C"):
        assert words in drawn
    assert "1,755 of 1,980 MHz" in drawn and "▲" not in drawn
    hot = replace(GPU, throttle=("too hot", "power cap"))
    assert "▲ too hot, power cap" in text(machine.detail(shown(gpus=(hot,)), 116, 30))


def test_a_processor_shows_cores_memory_and_an_estimate_of_its_traffic():
    memory = MemoryState(
        rss_bytes=640 << 20, cpu_percent=142.0, cores=2, bandwidth_bytes_s=2.6e9,
        bandwidth_peak_bytes_s=21.4e9,
    )  # fmt: skip
    drawn = text(machine.overview(shown(memory=memory, gpus=()), 33, 6))
    assert "142 of 200 %" in drawn and "640 MiB" in drawn
    assert "≈2.6 of 21.4 GB/s" in drawn
    detail = text(machine.detail(shown(memory=memory, gpus=()), 116, 36))
    assert "GPU: none on this machine" in detail and "an estimate" in detail


@pytest.mark.parametrize("state", ["typical", "full"])
def test_latency_has_a_distribution_and_a_course_of_each(state, shown_of):
    drawn = text(latency.detail(shown_of(state), 116, 36))
    for name in ("TTFT", "TPOT", "E2E"):
        assert f"{name}, last minute" in drawn and f"{name} p99" in drawn
    small = text(latency.detail(shown_of(state), 78, 21))
    assert "TTFT, last minute" in small and "TPOT p99" in small


def test_columns_beside_each_other_keep_their_widths():
    lines = beside([text_line("a" * 30), text_line("b")], [text_line("c")], 21)
    assert [plain(line) for line in lines] == ["aaaaaaaa…   c", "b           "]


def test_a_cell_for_several_pages_shows_whose_they_are():
    from console.renderables.pagemap import merge, owner_glyph

    assert merge("..a.bbab....", 4, "") == "ab."
    assert owner_glyph("+")[0] == "+" and owner_glyph("z")[0] == "z"
