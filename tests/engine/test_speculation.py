"""Speculation: what comes is what would have come without it, to the bit, whatever is drafted."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

from builders import tiny_spec, tiny_tensors
from engine.core import Engine
from engine.errors import ConfigError, ModelError
from engine.request import FinishReason, Request, SamplingParams
from engine.scheduling.lookup import PromptLookup
from engine.scheduling.plan import NO_DRAFT, Draft, Plan, PlanItem
from engine.scheduling.speculation import PATIENCE, Speculation, verified
from engine.scheduling.stepcost import StepTimes
from engine.stream import Stream
from engines import Ticking, assert_nothing_held, step_until_idle, tiny_engine
from model_files import write_hf

VOCAB = 270


class Guesses:
    """A drafter that knows what comes, by prompt, and is wrong in part."""

    def __init__(self, outputs: dict[tuple[int, ...], list[int]], seed: int) -> None:
        self.outputs, self.random = outputs, random.Random(seed)

    def depth(self, requests: int, most: int, step: float, row: float) -> int:
        return most

    def draft(self, asked: Sequence[tuple[Request, int]]) -> list[Draft]:
        return [self._draft(request, most) for request, most in asked]

    def _draft(self, request: Request, most: int) -> Draft:
        known = self.outputs.get((request.number,), [])
        at = len(request.output_ids)
        tokens = known[at : at + self.random.randint(0, most)]
        wrong = [
            t if self.random.random() < 0.7 else self.random.randrange(3, VOCAB) for t in tokens
        ]
        return Draft(wrong, [1.0] * len(wrong))

    def forget(self, request: Request) -> None:
        pass


class Always(Speculation):
    """Drafts whatever it is given: time is not asked."""

    def _lengths(self, odds: Sequence[Sequence[float]], plan: Plan, budget: int) -> list[int]:
        lengths = []
        for chain in odds:
            lengths.append(min(len(chain), max(budget, 0)))
            budget -= lengths[-1]
        return lengths


def params(rng: random.Random) -> SamplingParams:
    wild = rng.random() < 0.5
    return SamplingParams(
        max_tokens=rng.randint(5, 60),
        min_tokens=rng.choice([0, 0, 5]) if wild else 0,
        temperature=rng.choice([0.0, 0.7, 1.0, 1.5]),
        seed=rng.choice([None, rng.randrange(2**40)]),
        top_p=rng.choice([1.0, 0.9]),
        top_k=rng.choice([0, 5]),
        logprobs=rng.choice([None, 0, 3]),
        repetition_penalty=rng.choice([1.0, 1.2]) if wild else 1.0,
        frequency_penalty=rng.choice([0.0, 0.5]) if wild else 0.0,
        bad_words=((5, 6),) if wild else (),
        stop=("a", "th") if rng.random() < 0.2 else (),
        ignore_eos=rng.random() < 0.5,
    )


def world(seed: int, count: int) -> list[tuple[int, list[int], SamplingParams]]:
    """(step of arrival, prompt, parameters)."""
    rng = random.Random(seed)
    shared = [rng.randrange(3, VOCAB) for _ in range(40)]
    found = []
    for _ in range(count):
        prompt = [rng.randrange(3, VOCAB) for _ in range(rng.randint(1, 50))]
        if rng.random() < 0.3:
            prompt = shared + prompt
        found.append((rng.randrange(count), prompt, params(rng)))
    return sorted(found, key=lambda one: one[0])


def serve(engine: Engine, requests: Sequence[tuple[int, list[int], SamplingParams]]) -> list[tuple]:
    """What each request got; the books are looked at after every step."""
    streams: list[Stream] = []
    step = 0
    coming = list(requests)
    while coming or any(not stream.closed for stream in streams):
        while coming and coming[0][0] <= step:
            _, prompt, one = coming.pop(0)
            streams.append(engine.submit(prompt, one))
        engine.step()
        engine.loop.scheduler.check_integrity()
        step += 1
        assert step < 20_000
    assert_nothing_held(engine)
    events = [stream.poll() for stream in streams]
    return [(e.token_ids, e.text, e.finish_reason, e.logprobs) for e in events]


def drafting(engine: Engine, drafter: Guesses) -> Engine:
    engine.load()
    engine.loop.speculation = Always(drafter, 8, engine.pool.page_tokens)
    return engine


@pytest.mark.parametrize("kv_format", ["fp16", "int8_channel", "int8_token"])
@pytest.mark.parametrize("seed", [0, 1])
def test_tokens_and_log_probabilities_are_the_same_to_the_bit(kv_format, seed):
    settings = {"kernels": "cpu", "kv_format": kv_format, "max_batch": 8, "token_budget": 32}
    requests = world(seed, 40)
    plain = serve(tiny_engine(**settings), requests)
    known = {(n,): list(one[0]) for n, one in enumerate(plain, 1)}
    engine = drafting(tiny_engine(**settings), Guesses(known, seed))
    assert serve(engine, requests) == plain
    totals = engine.telemetry.totals
    assert 100 < totals["accepted_tokens"] < totals["draft_tokens"] - 20


def test_so_it_is_while_requests_lose_their_pages():
    settings = {"kernels": "cpu", "max_batch": 8, "token_budget": 64, "pages": 12}
    requests = world(5, 30)
    plain = serve(tiny_engine(**settings), requests)
    known = {(n,): list(one[0]) for n, one in enumerate(plain, 1)}
    engine = drafting(tiny_engine(**settings), Guesses(known, 3))
    assert serve(engine, requests) == plain
    assert engine.loop.telemetry.totals["preemptions"] > 3
    assert FinishReason.KV_CAPACITY not in {one[2] for one in plain}


def test_a_cancel_between_two_steps_of_drafts_leaves_nothing():
    requests = world(7, 12)
    known = {(n,): list(range(3, 60)) for n in range(1, 13)}
    engine = drafting(tiny_engine(kernels="cpu"), Guesses(known, 1))
    streams = [engine.submit(prompt, one) for _, prompt, one in requests]
    for stream in streams:
        engine.step()
        engine.cancel(stream.request_id)
        engine.pool.check_integrity()
    step_until_idle(engine)
    assert_nothing_held(engine)


def test_tokens_that_are_not_finite_end_the_request_where_they_would_without_drafts(monkeypatch):
    """Row by row the same: what stands before the broken one is delivered first."""

    def broken(engine: Engine) -> Engine:
        sample = engine._compute.sampler.sample

        def poisoned(logits, rows, ahead=()):
            for row, request in enumerate(rows):
                at = len(request.output_ids) + len(ahead[row] if ahead else ())
                if request.number % 3 == 0 and at == 9:
                    logits[row] = float("nan")
            return sample(logits, rows, ahead)

        monkeypatch.setattr(engine._compute.sampler, "sample", poisoned)
        return engine

    requests = world(11, 12)
    plain = serve(broken(tiny_engine(kernels="cpu")), requests)
    assert sum(one[2] is FinishReason.ERROR for one in plain) > 1
    known = {(n,): list(one[0]) + [7] * 9 for n, one in enumerate(plain, 1)}
    engine = broken(drafting(tiny_engine(kernels="cpu"), Guesses(known, 2)))
    assert serve(engine, requests) == plain


def decoding(prompt: list[int], output: list[int], ends_at: int = 100) -> Request:
    request = Request("r", SamplingParams(), Stream("r"), prompt, output)
    request.num_computed, request.ends_at = request.num_tokens - 1, ends_at
    return request


def plan_of(*requests: Request) -> Plan:
    return Plan([PlanItem(r, r.num_computed, 1, 1) for r in requests])


class Sure:
    def depth(self, requests: int, most: int, step: float, row: float) -> int:
        return most

    def draft(self, asked: Sequence[tuple[Request, int]]) -> list[Draft]:
        return [Draft(list(range(50, 50 + most)), [0.9] * most) for _, most in asked]

    def forget(self, request: Request) -> None:
        pass


def speculation(row: int = 1, step: int = 100) -> Speculation:
    """Where one more row costs `row` and the first `step`."""
    made = Speculation(Sure(), 8, 16)
    for rows in (1, 2, 5):
        made.times.note(rows, step + row * (rows - 1))
    return made


@pytest.mark.parametrize(
    ("known", "ends_at", "budget", "longest"),
    [
        (3, 100, 99, 8),
        (9, 100, 99, 6),  # rows 8 … 14 of a page of 16: the last stays free
        (15, 100, 99, 0),
        (16, 100, 99, 0),  # the newest token fills the page
        (17, 100, 99, 8),
        (3, 4, 99, 2),  # the row behind the last draft token gives the last token
        (3, 1, 99, 0),
        (3, 100, 5, 5),
        (3, 100, 0, 0),
    ],
)
def test_a_draft_never_fills_its_page_nor_outlasts_its_request(known, ends_at, budget, longest):
    plan = plan_of(decoding(list(range(3, 2 + known)), [7], ends_at))
    speculation().extend(plan, budget)
    (item,) = plan.items
    assert (len(item.draft), item.tokens, item.samples) == (longest, 1 + longest, 1 + longest)


def test_drafts_are_as_long_as_they_pay_at_this_batch():
    def length(row: int, others: int) -> int:
        plan = plan_of(*(decoding([1, 2, 3], [7]) for _ in range(1 + others)))
        speculation(row).extend(plan, 256)
        return sum(len(item.draft) for item in plan.items)

    assert length(1, 0) == 8
    assert 1 <= length(30, 0) < 8
    assert length(200, 0) == 0  # a row costs two steps
    assert length(100, 30) == 0  # a step of 31 rows is 31 times one of one
    assert length(1, 30) > 2 * 31


def test_it_is_said_when_drafts_stop_to_pay_and_when_they_pay_again():
    made = speculation(row=200)
    for _ in range(PATIENCE):
        assert made.pays
        made.extend(plan_of(decoding([1, 2, 3], [7])), 256)
    assert not made.pays and "not computed" in made.state
    for _ in range(2000):
        made.times.note(1, 100)
        made.times.note(9, 101)
    made.extend(plan_of(decoding([1, 2, 3], [7])), 256)
    assert made.pays


def test_what_stands_of_the_sampled_rows():
    first, second, third = (decoding([1], [2]) for _ in range(3))
    second.id, third.id = "s", "t"
    items = [
        PlanItem(first, 1, 4, 4, draft=(5, 6, 7)),
        PlanItem(second, 1, 1, 1),
        PlanItem(decoding([1, 2], []), 0, 1, 0),
        PlanItem(third, 1, 3, 3, draft=(8, 9)),
    ]
    stand, kept = verified(items, [5, 6, 1, 2, 3, 8, None, 4])
    assert [token for _, token in stand] == [5, 6, 1, 3, 8]
    assert kept == {"r": 3, "t": 1}
    stand, kept = verified(items, [5, 6, 7, 2, None, 4, 9, 1])
    assert [token for _, token in stand] == [5, 6, 7, 2, None, 4]
    assert kept == {"r": 4, "t": 1}


def test_a_line_through_steps():
    times = StepTimes()
    rng = random.Random(0)
    for _ in range(500):
        rows = rng.choice([1, 2, 3, 9, 40])
        times.note(rows, int((1000 + 50 * rows) * rng.uniform(0.95, 1.05)))
    assert times.row == pytest.approx(50, rel=0.1) and times.of(9) == pytest.approx(1450, rel=0.05)


class TestPromptLookup:
    def test_what_followed_the_same_tokens_comes_again(self):
        lookup = PromptLookup()
        request = decoding([10, 11, 12, 13, 14, 15, 1, 2], [10, 11])
        tokens, odds = lookup.draft([(request, 3)])[0]
        assert list(tokens) == [12, 13, 14] and len(odds) == 3
        request.append(12)
        request.append(13)
        assert list(lookup.draft([(request, 3)])[0].tokens) == [14, 15, 1]

    def test_the_longer_run_wins_over_the_newer_one(self):
        request = decoding([1, 2, 3, 4, 77, 9, 3, 4, 88, 1, 2, 3], [4])
        assert list(PromptLookup().draft([(request, 1)])[0].tokens) == [77]

    def test_a_run_that_has_come_to_the_present_goes_on_with_itself(self):
        request = decoding([5, 6, 5, 6, 5], [6])
        assert list(PromptLookup().draft([(request, 5)])[0].tokens) == [5, 6, 5, 6, 5]

    def test_nothing_where_nothing_was_seen(self):
        assert PromptLookup().draft([(decoding([1, 2, 3], [4]), 8)]) == [NO_DRAFT]

    def test_odds_follow_what_came_also_while_nothing_is_computed(self):
        def odds(right: bool, length: int) -> float:
            lookup, rng = PromptLookup(), random.Random(0)
            request = decoding(list(range(10, 60)) * 3, [10, 11])
            for place in range(12, 52):
                lookup.draft([(request, 1)])[0]
                again = (10, 11, rng.randrange(60, 90))[place % 3]
                request.append(place if right else again)
            lookup.draft([(request, 1)])[0]
            return lookup._chance(lookup._trails[request], length)

        assert odds(True, length=10) > 0.9 and odds(False, length=2) < 0.4

    def test_all_that_it_drafts_was_said_before(self):
        rng = random.Random(4)
        for _ in range(200):
            lookup = PromptLookup()
            request = decoding([rng.randrange(4) for _ in range(rng.randint(1, 30))], [1])
            for _ in range(20):
                most = rng.randint(1, 6)
                tokens, _ = lookup.draft([(request, most)])[0]
                ids = request.prompt_ids + request.output_ids
                if tokens:
                    assert len(tokens) == most
                    assert any(
                        (ids[at - 2 : at], ids[at]) == (ids[-2:], tokens[0])
                        for at in range(2, len(ids))
                    )
                request.append(rng.randrange(4))
            lookup.forget(request)
            assert len(lookup) == 0


# --- a small model that drafts ----------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    """A folder with the tiny engine's own weights, and one with others and a different shape."""
    made = {}
    for name, spec, seed in (
        ("same", tiny_spec(layers=2), 0),
        ("other", tiny_spec(layers=1, hidden=32, heads=2, kv_heads=1), 5),
    ):
        folder = tmp_path_factory.mktemp("draft") / name
        made[name] = str(write_hf(folder, spec, tiny_tensors(spec, seed)))
    return made


def model_drafts(engine: Engine) -> Engine:
    """Every draft that the model makes is computed, whatever time says."""
    speculation = engine.loop.speculation
    assert speculation is not None
    engine.loop.speculation = Always(speculation.drafter, 4, engine.pool.page_tokens)
    speculation.drafter.depth = lambda requests, most, step, row: most
    return engine


@pytest.mark.parametrize("name", ["same", "other"])
@pytest.mark.parametrize("kv_format", ["int8_channel", "int8_token"])
def test_a_model_drafts_and_nothing_changes(models, name, kv_format):
    settings = {"kernels": "cpu", "kv_format": kv_format, "token_budget": 24}
    requests = world(3, 30)
    plain = serve(tiny_engine(**settings), requests)
    engine = model_drafts(
        tiny_engine(speculate="draft", draft_model=models[name], max_draft=4, **settings)
    )
    assert serve(engine, requests) == plain
    totals = engine.telemetry.totals
    if name == "same":
        assert totals["accepted_tokens"] > 0.8 * totals["draft_tokens"] > 100
    else:
        assert totals["accepted_tokens"] < 0.5 * totals["draft_tokens"]
    assert len(engine.loop.speculation.drafter) == 0


def test_a_model_drafts_for_requests_that_lose_their_pages(models):
    settings = {"kernels": "cpu", "max_batch": 8, "token_budget": 64, "pages": 12}
    requests = world(5, 30)
    plain = serve(tiny_engine(**settings), requests)
    engine = model_drafts(tiny_engine(speculate="draft", draft_model=models["same"], **settings))
    assert serve(engine, requests) == plain
    totals = engine.telemetry.totals
    assert totals["preemptions"] > 3
    assert totals["accepted_tokens"] > 0.8 * totals["draft_tokens"]


def test_a_model_that_is_never_right_is_asked_no_more_than_now_and_then(models):
    clock = Ticking()
    engine = tiny_engine(kernels="cpu", speculate="draft", draft_model=models["other"], clock=clock)
    serve(engine, [(0, [9, 8, 7], SamplingParams(max_tokens=400, ignore_eos=True, seed=1))])
    totals = engine.telemetry.totals
    assert totals["drafts"] < 40 and totals["steps"] > 240


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"speculate": "draft"}, "draft_model"),
        ({"draft_model": "somewhere"}, "draft_model"),
        ({"speculate": "prompt", "policy": "static"}, "speculate: static batches"),
        ({"speculate": "yes"}, "speculate: 'yes' is not one of off, prompt, draft"),
        ({"speculate": "prompt", "kernels": "reference"}, "only the cpu kernels"),
        ({"speculate": "prompt", "max_draft": 0}, "max_draft"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings, words):
    with pytest.raises(ConfigError, match=words):
        tiny_engine(**{"kernels": "cpu"} | settings)


def test_a_draft_model_with_other_tokens_or_no_files_is_refused(models, tmp_path):
    folder = tmp_path / "strange"
    spec = tiny_spec(layers=1)
    write_hf(folder, spec, tiny_tensors(spec))
    inner = json.loads((folder / "tokenizer.json").read_text())
    vocab = inner["model"]["vocab"]
    a, b = list(vocab)[10], list(vocab)[11]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    (folder / "tokenizer.json").write_text(json.dumps(inner))
    with pytest.raises(ConfigError, match="another vocabulary"):
        tiny_engine(kernels="cpu", speculate="draft", draft_model=str(folder))
    with pytest.raises(ModelError, match="does not exist"):
        tiny_engine(kernels="cpu", speculate="draft", draft_model=str(tmp_path / "none"))
    short = tiny_spec(layers=1, max_positions=64)
    write_hf(tmp_path / "short", short, tiny_tensors(short))
    with pytest.raises(ConfigError, match="set max_model_len to 64"):
        tiny_engine(kernels="cpu", speculate="draft", draft_model=str(tmp_path / "short"))
