"""A recording as a history: how many requests came, and how long they were on average."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from pathlib import Path

from console.recording.file import Recording
from console.recording.recorder import SUFFIX
from engine.errors import ConfigError
from engine.snapshot import Snapshot, SourceState
from playbooks.forecast.bursts import GammaGaps
from playbooks.forecast.history.burstiness import cv_of_counts
from playbooks.forecast.history.history import LATENCIES, History
from playbooks.forecast.history.read import read_history
from playbooks.forecast.sizes import PresetSizes

SLOTS = 120
"""A recording gives so many at least …"""
SLOT_S = 60.0
"""… but none is longer."""


def read_past(path: Path, zone: tzinfo) -> History:
    """A recording, by its name, or whatever else `read_history` takes. Raises ConfigError."""
    return history_of(path) if path.suffix == SUFFIX else read_history(path, zone)


def history_of(path: Path) -> History:
    """Raises ConfigError for a recording whose engine did not count its requests."""
    recording = Recording(path)
    seconds = recording.ended - recording.began
    slot = min(max(seconds / SLOTS, 1.0), SLOT_S)
    looks = list(_looks(recording, slot))
    counts: list[float | None] = [
        _grown(before.queue.requests_total, after.queue.requests_total)
        for before, after in pairwise(looks)
    ]
    if not any(count is not None for count in counts):
        raise ConfigError(f"history {path}: its engine did not tell how many requests came")
    sizes, notes = _sizes(looks)
    cv = cv_of_counts(counts, slot)
    return History(
        str(path), datetime.fromtimestamp(recording.began, UTC), slot, tuple(counts), sizes,
        bursts=None if cv is None else GammaGaps(cv), latencies=_latencies(looks[1:]),
        assumptions=tuple(notes),
    )  # fmt: skip


def _latencies(looks: list[Snapshot]) -> dict[str, tuple[float | None, ...]]:
    """What the engine's recent requests had, looked at where each slot ends."""
    return {
        f"{name} {quantile}": tuple(
            getattr(getattr(look.latency, name), quantile) for look in looks
        )
        for name, quantile in LATENCIES
    }


def _looks(recording: Recording, slot: float) -> Iterator[Snapshot]:
    """One at the begin of each slot and one at the end; while nothing was seen, an empty one."""
    due, index = recording.began, 0
    while index < len(recording.segments):
        for moment in recording.moments(index):
            while moment.at >= due + slot:
                yield Snapshot()
                due += slot
            if moment.at >= due:
                seen = moment.sample()
                yield seen if seen.source.state is SourceState.LIVE else Snapshot()
                due += slot
        index += 1


def _grown(before: int | None, after: int | None) -> float | None:
    """A counter that fell began again at 0."""
    if before is None or after is None:
        return None
    return float(after - before if after >= before else after)


def _sizes(looks: list[Snapshot]) -> tuple[PresetSizes | None, list[str]]:
    """With the recording's own means; how lengths spread it does not say."""
    requests = prompts = outputs = 0.0
    for before, after in pairwise(looks):
        grown = [
            _grown(before.queue.requests_total, after.queue.requests_total),
            _grown(before.batch.prompt_tokens_total, after.batch.prompt_tokens_total),
            _grown(before.batch.output_tokens_total, after.batch.output_tokens_total),
        ]
        if None not in grown:
            requests, prompts, outputs = (
                whole + (part or 0.0)
                for whole, part in zip((requests, prompts, outputs), grown, strict=True)
            )
    if not requests or not prompts or not outputs:
        return None, []
    prompt, output = prompts / requests, outputs / requests
    note = (
        f"lengths are spread as in `chat`, with the recording's means: {prompt:.0f} prompt and "
        f"{output:.0f} output tokens"
    )
    return PresetSizes.of_means(prompt, output), [note]
