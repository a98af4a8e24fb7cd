"""Every panel in every state at every size: it fits, invents nothing and loses nothing."""

import re
from dataclasses import replace

import pytest

from console.panels.specs import PANELS
from console.renderables import batch, events, header, kv, latency, queue, stages
from console.renderables.lines import plain, width_of
from console.renderables.screen_state import EnginePhase, ScreenState
from engine.snapshot import Event, Snapshot, Source, SourceState

STATES = ["empty", "idle", "typical", "full", "preempting", "stale", "dead", "broken"]
SIZES = [(31, 3), (34, 5), (36, 6), (41, 5), (76, 6), (78, 6), (116, 10), (196, 26)]
SMALL = {"queue": (34, 5), "batch": (41, 5), "kv": (78, 5), "latency": (38, 5), "stages": (38, 5)}
"""Inside of the panels in a window of 80×24."""
LARGE = {"queue": (36, 6), "batch": (76, 6), "kv": (116, 10), "latency": (36, 15)}


def text_of(draw, state, width, height):
    return "\n".join(plain(line) for line in draw(state, width, height))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("spec", PANELS, ids=lambda spec: spec.id)
def test_fits_at_every_size(spec, state, shown_of):
    state = shown_of(state)
    for width, height in SIZES:
        for draw in (spec.view.overview, spec.view.detail):
            lines = draw(state, width, height)
            assert len(lines) <= height
            assert max((width_of(line) for line in lines), default=0) <= width
            text = text_of(draw, state, width, height)
            assert not re.search(r"\b(nan|inf|None)\b", text)


@pytest.mark.parametrize("spec", PANELS, ids=lambda spec: spec.id)
def test_what_is_not_reported_is_never_zero(spec, shown_of):
    for width, height in SIZES:
        text = text_of(spec.view.overview, shown_of("empty"), width, height)
        assert not re.search(r"\d", re.sub(r"p\d\d|E2E|−2 min", "", text)), text


def fields_of(panel, state):
    snapshot = state.snapshot
    if panel == "queue":
        return [*queue.counts(snapshot.queue), *queue.waits(snapshot.queue)]
    if panel == "batch":
        return batch.fields(state)
    return [*kv.usage(snapshot.kv), *kv.fields(snapshot.kv, snapshot.memory)]


@pytest.mark.parametrize("state", ["typical", "full", "preempting"])
@pytest.mark.parametrize("panel", ["queue", "batch", "kv"])
def test_no_value_is_lost_in_a_small_window(panel, state, shown_of):
    state = shown_of(state)
    spec = next(spec for spec in PANELS if spec.id == panel)
    for size in (SMALL[panel], LARGE[panel]):
        text = text_of(spec.view.overview, state, *size)
        for field in fields_of(panel, state):
            assert field.label[:6] in text
            assert field.value in text, (size, field)


@pytest.mark.parametrize("state", ["typical", "full", "preempting"])
def test_latency_and_shares_keep_every_value(state, shown_of):
    state = shown_of(state)
    small = text_of(latency.overview, state, *SMALL["latency"])
    large = text_of(latency.overview, state, *LARGE["latency"])
    assert large.startswith(small)
    words = text_of(stages.overview, state, *SMALL["stages"])
    bars = text_of(stages.overview, state, 36, 15)
    assert words.count("%") == bars.count("%") == 13


def test_the_oldest_wait_becomes_trouble(shown_of):
    assert "▲" not in text_of(queue.overview, shown_of("typical"), 36, 6)
    assert "▲" in text_of(queue.overview, shown_of("preempting"), 36, 6)


def test_the_queue_says_when_waiting_is_most_of_the_latency(shown_of):
    assert "▲ waiting is" in text_of(queue.detail, shown_of("full"), 116, 30)
    assert "not known yet" in text_of(queue.detail, shown_of("empty"), 116, 30)


def test_recent_preemptions_are_trouble(shown_of):
    preempted = next(f for f in batch.fields(shown_of("preempting")) if f.label == "preempted")
    assert preempted.trouble
    assert not any(f.trouble for f in batch.fields(shown_of("typical")))


def test_a_full_pool_is_trouble(shown_of):
    snapshot = shown_of("full").snapshot
    for usage, drawn in ((0.94, "used 94 %"), (0.96, "used ▲ 96 %")):
        full = replace(snapshot, kv=replace(snapshot.kv, usage=usage))
        assert drawn in text_of(kv.overview, ScreenState(full), 78, 6)


def test_the_map_says_how_many_pages_a_cell_stands_for(shown_of):
    assert "a cell: most of 8 pages" in text_of(kv.overview, shown_of("typical"), 78, 5)
    assert "a cell" not in text_of(kv.overview, shown_of("typical"), 116, 10)


def test_events_newest_first_with_their_count():
    tail = (Event(60.0, "cap", "cap 28 → 32"), Event(61.0, "preempt", "preempted r-81", count=3))
    lines = events.overview(ScreenState(Snapshot(events=tail)), 60, 5)
    assert [plain(line) for line in lines] == [
        "00:01:01 ▲ preempted r-81 ×3",
        "00:01:00   cap 28 → 32",
    ]


def test_header_live(shown_of):
    text = plain(header.header(shown_of("typical"), 120))
    assert text.startswith(" EveWatch  SmolLM2-135M · cpu · int8_channel · cap ")
    assert re.search(r"/48 dyn +● live 0\.\d s   00:02:00 $", text)


@pytest.mark.parametrize(
    ("state", "mark"),
    [
        (SourceState.STALE, "◌ stale"),
        (SourceState.UNREACHABLE, "○ unreachable"),
        (SourceState.UNPARSABLE, "× unparsable"),
        (SourceState.WRONG_ENGINE, "≠ wrong engine"),
    ],
)
def test_every_bad_state_has_mark_age_and_reason(state, mark):
    state = ScreenState(Snapshot(source=Source(state, age_s=12.0, reason="connection refused")))
    assert f"{mark} 12 s" in plain(header.header(state, 80))
    assert "for 12 s: connection refused" in plain(header.banner(state, 100))
    assert header.suffix(state, reported=True) == " ▲ 12 s old"


def test_a_missing_section_is_named_in_the_title():
    assert header.suffix(ScreenState(), reported=False) == " · no data"
    assert header.suffix(ScreenState(), reported=True) == ""


def test_header_says_where_products_are_of_integers(shown_of):
    def at(compute, width):
        state = shown_of("typical")
        engine = replace(state.snapshot.engine, compute=compute)
        return plain(header.header(replace(state, snapshot=replace(state.snapshot, engine=engine)),
                                   width))  # fmt: skip

    assert "compute mixed" in at("mixed", 120) and "▲" not in at("mixed", 120)
    assert "compute" not in at("f32", 120) and "compute" not in at("mixed", 70)


def test_header_shows_what_is_switched(shown_of):
    state = shown_of("typical")
    held = ScreenState(state.snapshot, state.history, readonly=True, paused=True)
    text = plain(header.header(held, 120))
    assert "read-only" in text and "▲ display paused" in text


def test_loading_has_a_line_of_its_own():
    state = ScreenState(phase=EnginePhase.LOADING, phase_s=3.2, loading="model embedded")
    assert "◌ loading 3.2 s" in plain(header.header(state, 80))
    assert "loading model embedded" in plain(header.banner(state, 80))


def test_banner_is_empty_when_all_is_well(shown_of):
    assert header.banner(shown_of("typical"), 80) == ()
