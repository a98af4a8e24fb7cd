"""Speculation on and off, in turns: `python -m benchmarks.bench_speculation copy|chat|equal`.

copy    the 20 prompts of copy_edit.toml one after another, greedy, on the embedded model
chat    chat lengths with sampled outputs, a closed batch of 1, 8 and 48
equal   `--requests` mixed requests on a tiny model (sampled, greedy, preempted, cancelled, timed
        out, broken): tokens and log probabilities held against each other to the bit

Prints the medians of each arm, the median of the turns' ratios by wall and by CPU time, and
whether the tokens were the same.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli

from engine.config import EngineConfig
from engine.core import Engine
from engine.request import FinishReason, SamplingParams
from engines import Ticking, tiny_engine

ARMS = ("off", "prompt")
PROMPTS = Path(__file__).with_name("copy_edit.toml")
OUTPUT = 160
Asked = tuple[Any, SamplingParams]


def copies(engine: Engine) -> list[list[Asked]]:
    """Each alone."""
    texts = [one["text"] for one in tomli.loads(PROMPTS.read_text("utf-8"))["prompt"]]
    tokenizer = engine.loaded.tokenizer
    params = SamplingParams(max_tokens=OUTPUT)
    return [[(tokenizer.chat([{"role": "user", "content": t}]), params)] for t in texts]


def chats(batch: int, seed: int) -> list[list[Asked]]:
    """`batch` at once, so often that each arm works for a while. Random prompts: nothing repeats
    but what the model itself repeats."""
    rng = random.Random(seed)
    rounds = []
    for _ in range(max(1, 6 // batch)):
        rounds.append([
            ([rng.randrange(100, 40_000) for _ in range(rng.randint(16, 96))],
             SamplingParams(max_tokens=64, ignore_eos=True, temperature=0.8, seed=n))
            for n in range(batch)
        ])  # fmt: skip
    return rounds


def served(engine: Engine, rounds: list[list[Asked]]) -> tuple[float, float, list[Any]]:
    """Wall seconds, CPU seconds, and what came."""
    found: list[Any] = []
    wall, cpu = time.perf_counter(), time.process_time()
    for asked in rounds:
        streams = [engine.submit(prompt, params) for prompt, params in asked]
        found += [stream.result().token_ids for stream in streams]
    return time.perf_counter() - wall, time.process_time() - cpu, found


def measure(work: str, turns: int, batch: int) -> dict[str, Any]:
    engines = {arm: Engine(EngineConfig(speculate=arm)) for arm in ARMS}
    for engine in engines.values():
        engine.start()
        engine.submit("warm up", SamplingParams(max_tokens=8)).result()
    times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
    same = True
    for turn in range(turns):
        answers = {}
        for arm in ARMS if turn % 2 else ARMS[::-1]:
            rounds = copies(engines[arm]) if work == "copy" else chats(batch, turn)
            wall, cpu, answers[arm] = served(engines[arm], rounds)
            times[arm].append((wall, cpu))
        same = same and answers["off"] == answers["prompt"]
    totals = engines["prompt"].telemetry.totals
    for engine in engines.values():
        engine.stop()
    report: dict[str, Any] = {"work": work, "batch": batch, "turns": turns, "same_tokens": same}
    for at, clock in enumerate(("wall_s", "cpu_s")):
        off, on = ([one[at] for one in times[arm]] for arm in ARMS)
        report[clock] = {"off": statistics.median(off), "prompt": statistics.median(on)}
        ratios = [a / b for a, b in zip(off, on, strict=True)]
        report[f"{clock[:-2]}_gain"] = statistics.median(ratios)
    names = ("drafts", "draft_tokens", "accepted_tokens", "steps", "output_tokens")
    return report | {name: totals[name] for name in names}


# --- equal ---------------------------------------------------------------------------------


def mixed(rng: random.Random) -> tuple[list[int], SamplingParams, int | None, float | None]:
    """A prompt that repeats itself, what is asked, after how many tokens its client leaves, and
    how long it may take."""
    motif = [rng.randrange(3, 40) for _ in range(rng.randint(2, 6))]
    prompt = (motif * 12)[: rng.randint(4, 60)]
    params = SamplingParams(
        max_tokens=rng.randint(5, 48),
        temperature=rng.choice([0.0, 0.0, 0.3, 1.0]),
        seed=rng.randrange(2**40),
        logprobs=rng.choice([None, 2]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.1]),
        logit_bias=tuple((token, 8.0) for token in motif),
        stop=("the",) if rng.random() < 0.1 else (),
        min_tokens=rng.choice([0, 3]),
    )
    leaves = rng.randint(1, 20) if rng.random() < 0.1 else None
    return prompt, params, leaves, rng.uniform(0.2, 3.0) if rng.random() < 0.1 else None


def broken(engine: Engine) -> Engine:
    """Every 97th request's fifteenth token is not finite."""
    sample = engine.sampler.sample

    def poisoned(logits: Any, rows: Any, ahead: Sequence[Sequence[int]] = ()) -> Any:
        for row, request in enumerate(rows):
            at = len(request.output_ids) + len(ahead[row] if ahead else ())
            if request.number % 97 == 0 and at == 14:
                logits[row] = float("nan")
        return sample(logits, rows, ahead)

    engine.sampler.sample = poisoned  # type: ignore[method-assign]
    return engine


def stream_all(engine: Engine, count: int, seed: int) -> list[Any]:
    """What each request got; who leaves has what came before. Books are checked at every step."""
    rng = random.Random(seed)
    coming = [mixed(rng) for _ in range(count)]
    open_: dict[int, tuple[Any, list[Any], int | None]] = {}
    got: list[Any] = [None] * count
    sent = 0
    while sent < count or open_:
        while sent < count and len(open_) < 24:
            prompt, params, leaves, most_s = coming[sent]
            open_[sent] = (engine.submit(prompt, params, timeout_s=most_s), [], leaves)
            sent += 1
        engine.step()
        engine.scheduler.check_integrity()
        for number, (stream, events, leaves) in list(open_.items()):
            while (event := stream.poll()) is not None:
                events.append(event)
                if event.finish_reason is not None:
                    got[number] = _whole(events, leaves)
                    del open_[number]
            came = sum(len(e.token_ids) for e in events)
            if number in open_ and leaves is not None and came >= leaves:
                engine.cancel(stream.request_id)
    assert engine.ledger().is_zero
    return got


def _whole(events: list[Any], leaves: int | None) -> Any:
    tokens = [t for e in events for t in e.token_ids]
    notes = [n for e in events for n in e.logprobs]
    late = events[-1].finish_reason is FinishReason.TIMEOUT
    if leaves is not None and not late:  # it may have had some more before the engine knew
        return tokens[:leaves], notes[:leaves], "left" if len(tokens) >= leaves else "ended"
    return tokens, notes, events[-1].finish_reason


def differ(one: Any, other: Any) -> bool:
    """Who ran out of time has what came before: the shorter of the two is how the longer begins."""
    if FinishReason.TIMEOUT in (one[2], other[2]):
        tokens, notes = (min(len(one[at]), len(other[at])) for at in (0, 1))
        one, other = ((had[0][:tokens], had[1][:notes]) for had in (one, other))
    return bool(one != other)


def equal(count: int) -> dict[str, Any]:
    """With the real drafter, and every draft that it knows: time is not asked here."""
    settings: dict[str, Any] = {"kernels": "cpu", "pages": 24, "max_batch": 16, "token_budget": 64}
    plain = stream_all(broken(tiny_engine(clock=Ticking(), **settings)), count, 0)
    engine = broken(tiny_engine(speculate="prompt", clock=Ticking(), **settings))
    assert engine.loop.speculation is not None
    engine.loop.speculation.times.note(1, 1_000_000)
    engine.loop.speculation.times.note(100, 1_000_001)
    engine.loop.speculation.times.note = lambda rows, spent: None  # type: ignore[method-assign]
    drafted = stream_all(engine, count, 0)
    totals = engine.telemetry.totals
    return {
        "requests": count,
        "different": sum(differ(a, b) for a, b in zip(plain, drafted, strict=True)),
        "preemptions": totals["preemptions"],
        "ended": dict(engine.telemetry.finished),
        "draft_tokens": totals["draft_tokens"],
        "accepted_tokens": totals["accepted_tokens"],
    }


def main() -> None:
    logging.disable(logging.ERROR)  # what is broken on purpose
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("work", choices=("copy", "chat", "equal"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8, 48], help="of chat")
    parser.add_argument("--requests", type=int, default=10_000, help="of equal")
    asked = parser.parse_args()
    if asked.work == "equal":
        print(json.dumps(equal(asked.requests), indent=1))
        return
    for batch in asked.batch if asked.work == "chat" else [1]:
        print(json.dumps(measure(asked.work, asked.turns, batch), indent=1))


if __name__ == "__main__":
    main()
