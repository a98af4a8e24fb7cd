"""Records that measurements write, and the log as a document: filters, exports, differences."""

import csv
import io
import itertools
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from playbooks.measure.experiment import find_experiment
from playbooks.optlog import Change, LogEffect, OptLog, Record
from playbooks.optlog.automatic import of_compare, of_quality, of_sweep
from playbooks.optlog.byhand import by_hand, decided, decision_on
from playbooks.optlog.diff import diff
from playbooks.optlog.export import export, report_of
from playbooks.optlog.select import Selection, moment
from report_schemas import violations

OWNERS = find_experiment("owners_table")


def effect(metric, source, to, before, after, low, high, verdict, unit="ms", n=3):
    change = None if low is None else (low + high) / 2
    return {"metric": metric, "title": metric.replace("_", " "), "unit": unit, "better": "lower",
            "from": source, "to": to, "before": before, "after": after, "change": change,
            "low": low, "high": high, "n": n, "verdict": verdict}  # fmt: skip


def arm(index, **changes):
    spec = OWNERS.arms[index]
    config = EngineConfig.from_dict(OWNERS.settings(index)).to_dict()
    bound = {"by": "kv", "why": "24 rows fill the pool"}
    return {"name": spec.name, "changes": spec.changes, "together": spec.together,
            "why": spec.why, "config": config, "bound_by": "kv", "bound": [bound] * 3,
            "preemptions": 0, "quality": None} | changes  # fmt: skip


def owners_report(**changes):
    """As `compare --experiment owners_table` reports it, with made-up numbers."""
    names = [spec.name for spec in OWNERS.arms]
    effects = []
    for before, after in itertools.pairwise(names):
        effects += [
            effect("throughput", before, after, 100.0, 180.0, 0.7, 0.9, "better", "tok/s"),
            effect("p99_e2e", before, after, 900.0, 910.0, -0.05, 0.07, "inconclusive"),
            effect("kv_bytes_per_token", before, after, 23040, 12780, -0.44, -0.44, "better", "B"),
            effect("memory", before, after, 1e8, None, None, None, "inconclusive", "B", 0),
        ]
    ends = names[0], names[-1]
    whole = [effect("throughput", *ends, 100.0, 320.0, 2.1, 2.3, "better", "tok/s"),
             effect("p99_e2e", *ends, 900.0, 700.0, -0.3, -0.1, "better")]  # fmt: skip
    goal = {"metric": "p99_e2e", "at_least": None, "at_most": 0.7, "ratio": 0.78,
            "verdict": "fail", "why": "0.78 of before, interval 0.70 … 0.90"}  # fmt: skip
    return {
        "schema": 1, "kind": "compare", "name": "owners_table", "title": OWNERS.title,
        "regime": OWNERS.regime, "model": "SmolLM2", "identity": "x", "quick": False,
        "scale": 0.25, "seed": 930, "repeats": 3,
        "work": {"batch_requests": 48, "rate_requests": 34, "rate_requests_s": 1.4,
                 "lengths": "lognormal 128/64"},
        "arms": [arm(0), arm(1, bound_by="batch", bound=[{"by": "batch", "why": "cap 32"}] * 2
                             + [{"by": "kv", "why": "full"}]),
                 arm(2, quality="warn", preemptions=7), arm(3), arm(4)],
        "effects": effects, "overall": whole, "goals": [goal], "findings": ["one", "two"],
        "verdict": "fail", "metrics": {}, "environment": {"torch": "2.13.0", "threads": 2},
        "seconds": 9.0,
    } | changes  # fmt: skip


# --- compare --------------------------------------------------------------------------------


def test_every_step_of_the_owners_table_has_its_own_record():
    records = of_compare(owners_report(), ("r.json",))
    assert [r.title.partition(": ")[2] for r in records] == [
        "static → continuous, paged", "continuous, paged → + INT8 KV",
        "+ INT8 KV → + dynamic batch", "+ dynamic batch → + integer products",
        "the whole, static → + integer products",
    ]  # fmt: skip
    paged, int8, dynamic, integer, whole = records
    assert {c.key: (c.before, c.after) for c in paged.what} == {
        "policy": ("static", "continuous"), "allocator": ("contiguous", "paged"),
        "reserve": ("max", "known"), "pad_prompts": (True, False),
    }  # fmt: skip
    assert int8.what == (Change("kv_format", "fp16", "int8_channel"),)
    assert integer.what == (Change("compute", "f32", "auto"),)
    assert "45 % less memory" in int8.why
    assert "page by page" in paged.how["one change, because"]
    assert {c.key for c in whole.what} == {
        "policy", "allocator", "reserve", "pad_prompts", "kv_format", "dynamic_batch", "compute"
    }  # fmt: skip
    assert all(r.decision == "hold" and r.claim == "measured" for r in records)
    assert dynamic.rollback == "Set dynamic_batch = false; the cap can be fixed while it runs."
    assert int8.rollback == "Set kv_format = fp16; restart the engine with them."


def test_effects_have_their_units_intervals_and_what_bound_them():
    paged, int8, *_ = of_compare(owners_report())
    assert paged.effect[0] == LogEffect("throughput_tok_s", 100.0, 180.0, 3, 0.7, 0.9, "better")
    assert [e.metric for e in paged.effect] == [
        "throughput_tok_s", "p99_e2e_ms", "kv_bytes_per_token", "memory_bytes", "bound_by"
    ]  # fmt: skip
    assert paged.effect[-1] == LogEffect("bound_by", "kv", "batch")
    assert paged.how["limit before"] == "bound by kv: 24 rows fill the pool"
    assert int8.effect[-1] == LogEffect("quality", None, "warn", verdict="warn")


def test_what_is_open_is_a_problem_of_the_record():
    paged, int8, dynamic, integer, whole = of_compare(owners_report(quick=True))
    text = "\n".join(paged.problems)
    assert "p99 e2e: inconclusive, -5.0% … +7.0% does not exclude zero" in text
    assert "memory: no interval, n is too small" in text
    assert "repeats disagree on what bound it: batch, kv" in text
    assert "a quick run (scale 0.25)" in text
    assert "throughput" not in text
    assert "7 preemptions" in "\n".join(int8.problems)
    assert "quality of int8_channel against fp16: warn" in int8.problems
    assert "quality of int8_channel was not judged in this run" in dynamic.problems
    assert "quality of int8_channel, compute auto was not judged in this run" in integer.problems
    assert whole.problems[0].startswith("goal p99_e2e (at most 0.7 × before): fail")


def test_two_arms_are_one_record():
    report = owners_report()
    report["arms"] = report["arms"][:2]
    report["effects"] = report["effects"][:4]
    assert len(of_compare(report | {"overall": [], "goals": []})) == 1


def test_the_markdown_of_an_owners_table_answers_all_four_questions(tmp_path):
    log = OptLog(tmp_path / "log.jsonl")
    for record in of_compare(owners_report(), ("report.json",)):
        log.append(record)
    reading = log.read()
    text = export(reading.records, reading, log.path, "md")
    sections = text.split("\n## ")[1:]
    assert len(sections) == 5
    for section in sections:
        for heading in ("What changed", "Why", "What it did", "What went wrong",
                        "How it was done", "Where", "How to undo it", "Files"):  # fmt: skip
            assert f"\n### {heading}\n" in section
        assert "No reason was written down" not in section
    assert "| kv_format | fp16 | int8_channel |" in sections[1]
    assert "| throughput_tok_s | 100 | 180 | +70.0% … +90.0% | 3 | better |" in sections[1]
    assert "- p99 e2e: inconclusive" in sections[1]
    assert "Answers differ in length" in sections[0]
    assert "seed: 930" in sections[0]
    assert "| metric | got | promised | verdict |" in sections[4]
    assert "findings:\n\n- one\n- two\n" in sections[4]
    assert "bound by kv" in sections[0]


# --- sweep and quality ------------------------------------------------------------------------


def point(batch, rate, counts=True):
    block = {"p50": 1.0, "p90": 2.0, "p99": float(batch), "mean": 1.0, "n": 200}
    return {"batch": batch, "output_tok_s": rate, "repeats": [rate] * 3, "counts": counts,
            "doubts": None if counts else "too short for a steady state", "bound_by": "cap",
            "latency": {"e2e_ms": block, "ttft_ms": block, "tpot_ms": block},
            "little_error": 0.01}  # fmt: skip


def sweep_report(**changes):
    return {
        "kind": "sweep", "model": "m", "config": EngineConfig().to_dict(),
        "work": {"lengths": "chat", "seed": 0, "repeats": 3, "p99_objective_ms": 50.0,
                 "p99_of": "e2e_ms"},
        "points": [point(1, 10.0), point(2, 19.0, False), point(4, 30.0), point(8, 31.0)],
        "knee": 4, "recommended_cap": 3, "abstained": False, "reasons": ["75% of the knee 4"],
        "environment": {"torch": "2"},
    } | changes  # fmt: skip


def test_a_sweep_recommends_and_says_what_it_costs():
    (record,) = of_sweep(sweep_report(), (), cap=48)
    assert record.title == "Batch sweep 1 … 8: knee 4, cap 3"
    assert record.what == (Change("max_batch", 48, 3),)
    assert record.effect[0] == LogEffect("output_tok_s, batch 8 → 4", 31.0, 30.0, 3)
    assert record.effect[1] == LogEffect("p99_e2e_ms, batch 8 → 4", 8.0, 4.0, 200)
    assert record.problems == ("batch 2 does not count: too short for a steady state",)
    assert [row["batch"] for row in record.how["points"]] == [1, 2, 4, 8]


def test_a_sweep_that_abstains_changes_nothing_and_says_why():
    abstains = {"knee": None, "recommended_cap": None, "abstained": True, "reasons": ["too noisy"]}
    (record,) = of_sweep(sweep_report(**abstains))
    assert record.what == record.effect == ()
    assert record.problems[0] == "too noisy"
    assert "no knee found" in record.title
    (over,) = of_sweep(sweep_report(recommended_cap=None, reasons=["over 50 ms at batch 1"]))
    assert "over 50 ms at batch 1" in over.problems


def quality_report(verdict="pass", **changes):
    return {
        "kind": "quality", "verdict": verdict, "format": "int8_tensor", "baseline": "fp16",
        "candidate": "int8_tensor",
        "changes": [{"setting": "kv_format", "baseline": "fp16", "candidate": "int8_tensor"}],
        "model": "m", "cases": 60, "positions": 900, "quick": False,
        "config": EngineConfig().to_dict(), "reasons": [], "suspects": [], "worst": [],
        "controls": {"fp16": {"expected": "pass", "verdict": "pass", "ok": True}},
        "gates": [{"metric": "mean_kld", "value": 0.0001, "verdict": verdict}],
    } | changes  # fmt: skip


def test_a_format_that_fails_is_rejected_with_its_suspects():
    suspect = {"layer": 3, "head": 1, "channel": 7, "ratio": 22.0, "why": "quantised"}
    worst = {"case": "sum-1", "category": "arithmetic", "first_divergence": 4}
    control = {"expected": "fail", "verdict": "pass", "ok": False}
    report = quality_report("fail", reasons=["mean KL divergence: 0.2"], suspects=[suspect],
                            worst=[worst], controls={"int8_tensor_outliers": control})  # fmt: skip
    (record,) = of_quality(report)
    assert record.decision == "reject"
    assert record.what == (Change("kv_format", "fp16", "int8_tensor"),)
    text = "\n".join(record.problems)
    assert "mean KL divergence: 0.2" in text
    assert "the check itself is in doubt" in text
    assert "layer 3, KV head 1, channel 7" in text
    assert "part at token 4" in text


def test_a_format_that_passes_waits_for_a_decision():
    (record,) = of_quality(quality_report())
    assert (record.decision, record.problems) == ("hold", ())
    assert record.effect == (LogEffect("mean_kld", None, 0.0001, 900, verdict="pass"),)


# --- by hand ----------------------------------------------------------------------------------


def test_changes_and_effects_from_text():
    record = by_hand(
        ["max_batch=64:48", "dynamic=:true", "url=http://a:http://b"], ["p99=812.5:430"],
        ["seed=7"], title="t",
    )  # fmt: skip
    assert record.what == (Change("max_batch", 64, 48), Change("dynamic", None, True),
                           Change("url", "http://a", "http://b"))  # fmt: skip
    assert record.effect == (LogEffect("p99", 812.5, 430),)
    assert record.how == {"seed": 7}
    assert record.operator


@pytest.mark.parametrize(
    ("what", "effect", "how", "why"),
    [
        (["max_batch"], [], [], "--what"), (["=1:2"], [], [], "--what"),
        (["a=1:2:3"], [], [], "--what"), ([], ["p99=1"], [], "--effect"),
        ([], [], ["seed"], "--how"), ([], [], ["=7"], "--how"),
    ],
)  # fmt: skip
def test_text_that_is_no_change_is_refused(what, effect, how, why):
    with pytest.raises(ConfigError, match=why):
        by_hand(what, effect, how, title="t")


def test_a_number_that_json_has_not_stays_text_or_nothing(tmp_path):
    record = by_hand([], ["p99=nan:inf"], [], title="t")
    log = OptLog(tmp_path / "log.jsonl")
    stored = log.append(record)
    (effect,) = log.read().records[0].effect
    assert stored.id
    assert (effect.before, effect.after) == (None, None)
    assert math.isnan(record.effect[0].before)


def test_a_decision_takes_what_it_decides_on(tmp_path):
    log = OptLog(tmp_path / "log.jsonl")
    origin = log.append(of_quality(quality_report())[0])
    made = by_hand([], [], [], title=decided(origin, "adopt"), decision="adopt", why="read them")
    record = log.append(decision_on(origin, made))
    assert record.title.startswith("adopted: Quality")
    assert record.what == origin.what
    assert record.effect == origin.effect
    assert record.how["decides on"] == origin.id
    assert record.why == "read them"


# --- filters ----------------------------------------------------------------------------------


def dated(title, time, **more):
    return Record(title, id="x", time=time, **more)


RECORDS = [
    dated("one", "2026-09-29T10:00:00.000Z", decision="adopt", effect=(LogEffect("p99_e2e_ms"),)),
    dated("two", "2026-09-30T23:30:00.000Z", decision="hold", what=(Change("max_batch", 1, 2),)),
    dated("three", "2026-10-01T08:00:00+08:00", decision="reject", problems=("GPU was hot",)),
    dated("four", "no time", why="温度 high", how={"lengths": "chat*0.2"}),
]


@pytest.mark.parametrize(
    ("selection", "titles"),
    [
        ({}, ["one", "two", "three", "four"]),
        ({"since": moment("2026-09-30", "")}, ["two", "three"]),
        ({"until": moment("2026-09-30", "", end=True)}, ["one", "two"]),
        ({"until": moment("2026-09-30T12:00", "")}, ["one"]),
        ({"since": moment("2026-10-01", "")}, ["three"]),
        ({"decisions": ("adopt", "reject")}, ["one", "three"]),
        ({"metric": "P99"}, ["one"]),
        ({"metric": "batch"}, ["two"]),
        ({"text": "hot gpu"}, ["three"]),
        ({"text": "温度"}, ["four"]),
        ({"text": "chat"}, ["four"]),
        ({"text": "nowhere"}, []),
        ({"last": 2}, ["three", "four"]),
        ({"decisions": ("adopt", "reject"), "last": 1}, ["three"]),
    ],
)
def test_filters(selection, titles):
    # 08:00 in +08:00 is midnight UTC, the first moment of October
    assert [r.title for r in Selection(**selection).of(RECORDS)] == titles


def test_times_and_what_is_none():
    assert moment(None, "--since") is None
    ago = datetime.now(UTC) - moment("36h", "--since")
    assert abs(ago - timedelta(hours=36)) < timedelta(minutes=1)
    assert moment("9999999999w", "--since") == datetime.min.replace(tzinfo=UTC)
    with pytest.raises(ConfigError, match="--since"):
        moment("yesterday", "--since")
    with pytest.raises(ConfigError, match="--decision"):
        Selection(decisions=("maybe",))
    with pytest.raises(ConfigError, match="--last"):
        Selection(last=0)


# --- exports and differences ------------------------------------------------------------------

NASTY = Record(
    "# Title | with <b>html</b>\nand a line",
    what=(Change("a|b", "x\ny", {"k": [1, 2.5]}),),
    why="1. not a list",
    effect=(
        LogEffect("m, \"q\"", 0.0, 3.0),
        LogEffect("big", 12345678, 0.000123, 2, -0.1, 0.1, "worse"),
    ),
    problems=("- not a bullet", "*not bold*"),
)  # fmt: skip


@pytest.fixture
def nasty(tmp_path):
    log = OptLog(tmp_path / "log.jsonl")
    log.append(NASTY)
    log.append(Record("plain"))
    return log


def test_markdown_takes_text_for_text(nasty):
    reading = nasty.read()
    text = export(reading.records, reading, nasty.path, "md")
    assert "\n## \\# Title | with &lt;b>html&lt;/b> and a line\n" in text
    assert "| a\\|b | x y | k 1, 2.5 |" in text
    assert "\n1\\. not a list\n" in text
    assert "- \\- not a bullet" in text
    assert "\\*not bold\\*" in text
    assert "| big | 12,345,678 | 0.000123 | -10.0% … +10.0% | 2 | worse |" in text
    assert "Nothing was noted." in text


def test_html_needs_nothing_beside_itself_and_escapes(nasty):
    reading = nasty.read()
    text = export(reading.records, reading, nasty.path, "html")
    assert "<b>html" not in text
    assert "&lt;b&gt;html" in text
    assert "src=" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_csv_has_a_row_an_effect_and_reads_back(nasty):
    reading = nasty.read()
    rows = list(csv.DictReader(io.StringIO(export(reading.records, reading, Path("x"), "csv"))))
    assert [r["metric"] for r in rows] == ['m, "q"', "big", ""]
    assert rows[0]["title"] == NASTY.title
    assert rows[1]["low"] == "-0.1"
    assert rows[2]["title"] == "plain"


def test_json_is_as_published_and_whole(nasty):
    reading = nasty.read()
    data = json.loads(export(reading.records, reading, nasty.path, "json"))
    assert violations(data, "log") == []
    assert data == report_of(reading.records, reading, nasty.path)
    stored = [json.loads(line) for line in nasty.path.read_bytes().splitlines()]
    assert data["records"] == stored


def test_a_damaged_log_says_so_in_its_exports(nasty):
    nasty.path.write_bytes(nasty.path.read_bytes()[:-9])
    reading = nasty.read()
    assert "is torn" in export(reading.records, reading, nasty.path, "md")
    assert "is torn" in export(reading.records, reading, nasty.path, "html")


def test_a_difference_names_what_effect_and_provenance():
    a = Record("a", what=(Change("cap", 1, 2),), how={"seed": 1, "deep": {"x": 1, "y": 2}},
               effect=(LogEffect("p99", 10.0, 8.0, verdict="better"), LogEffect("gone", 1, 0)),
               environment={"torch": "2.8", "cores": 2})  # fmt: skip
    b = Record("b", what=(Change("cap", 1, 4),), how={"seed": 2, "deep": {"x": 1, "y": 3}},
               effect=(LogEffect("p99", 10.0, 6.0), LogEffect("new", "kv", "batch")),
               environment={"torch": "2.9", "cores": 2})  # fmt: skip
    report = diff(a, b)
    assert violations(report, "log_diff") == []
    assert report["what"] == [{"key": "cap.after", "a": 2, "b": 4}]
    assert [row["key"] for row in report["how"]] == ["seed", "deep.y"]
    assert report["environment"] == [{"key": "torch", "a": "2.8", "b": "2.9"}]
    p99, gone, new = report["effect"]
    assert (p99["a"], p99["b"], p99["verdict_a"]) == (8.0, 6.0, "better")
    assert math.isclose(p99["change"], -0.25)
    assert (gone["a"], gone["b"], gone["change"]) == (0, None, None)
    assert (new["a"], new["b"]) == (None, "batch")
    assert report["notes"] == ["measured in different surroundings: torch",
                               "measured under different work: seed"]  # fmt: skip
    assert diff(a, a)["what"] == diff(a, a)["how"] == diff(a, a)["notes"] == []
