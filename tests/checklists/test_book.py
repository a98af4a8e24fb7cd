"""Checklists: files are read strictly, nobody's silence passes, humans answer what tools cannot."""

import pytest
import tomli

from checklists.book import Answer, Checklist, Item, load, merge, names, read_answers, template
from checklists.checks import ItemResult
from engine.errors import ConfigError

ROW = 'id = "a"\ntext = "t"\nowner = "o"\nwhy = "w"\n'
AUTO = ROW + 'kind = "auto"\nlook = "snapshot.kv.usage"\nexpect = "<= 0.8"\n'


def item(name, kind="human", severity="must"):
    return Item(name, "text", kind, "owner", "why", severity=severity,
                look="snapshot.kv.usage" if kind == "auto" else None,
                expect="<= 1" if kind == "auto" else None)  # fmt: skip


def checklist(*items):
    return Checklist("own", "Own", "", items)


# --- the files ------------------------------------------------------------------------------


def test_those_that_ship_are_complete():
    assert names() == ["canary_rollout", "kv_quant_change", "pre_holiday", "version_upgrade"]
    for name in names():
        found = load(name)
        assert found.of_kind("auto")
        assert found.of_kind("human")
        for one in found.items:
            assert one.owner and one.why and one.undo, f"{name}: {one.id}"
            assert one.text.endswith((".", "!", "?")) is False, f"{name}: {one.id}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = [", "not valid TOML"),
        ("schema = 2", "schema: expected 1, got 2"),
        ("luck = 1\n[[item]]\n", "unknown key 'luck'"),
        ("title = 'x'", r"expected \[\[item\]\]"),
        ("about = 3\n[[item]]\n" + ROW, "about: expected a text"),
        ("item = 3", "item: expected a list"),
        ("[[item]]\nid = 'a'", "text: is missing"),
        ("[[item]]\n" + ROW.replace('why = "w"', 'why = " "'), "why: is missing"),
        ("[[item]]\n" + ROW + 'colour = "x"', "unknown key 'colour'"),
        ("[[item]]\n" + ROW.replace('"t"', "3"), "expected a text"),
        ("[[item]]\n" + ROW.replace('"a"', '"A b"'), "small letters"),
        ("[[item]]\n" + ROW + 'kind = "magic"', "magic"),
        ("[[item]]\n" + ROW + 'severity = "perhaps"', "perhaps"),
        ("[[item]]\n" + ROW + 'when = "later"', "later"),
        ("[[item]]\n" + ROW + 'look = "snapshot.kv.usage"', "belong to automatic"),
        ("[[item]]\n" + ROW + 'kind = "auto"', "needs `look`"),
        ("[[item]]\n" + AUTO.replace('expect = "<= 0.8"', ""), "`expect` is missing"),
        ("[[item]]\n" + AUTO.replace("kv.usage", "kv.luck"), "there is no 'luck'"),
        ("[[item]]\n" + AUTO.replace("kv.usage", "kv"), "group of numbers"),
        ("[[item]]\n" + AUTO.replace("kv.usage", "kv.usage.deep"), "there is no 'deep'"),
        ("[[item]]\n" + AUTO.replace("snapshot.kv.usage", "config.luck"), "no 'luck'"),
        ("[[item]]\n" + AUTO.replace("snapshot.kv.usage", "computed.luck"), "'luck' is not"),
        ("[[item]]\n" + AUTO.replace("snapshot.kv.usage", "moon.phase"), "expected snapshot"),
        ("[[item]]\n" + AUTO.replace("<= 0.8", "about 1"), "no expectation"),
        ("[[item]]\n" + AUTO.replace("<= 0.8", "<= much"), "needs a number"),
        ("[[item]]\n" + AUTO + 'fails = "="', "no expectation"),
        ("[[item]]\n" + ROW + "[[item]]\n" + ROW, "'a' is there twice"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_one_line(tmp_path, text, why):
    path = tmp_path / "own.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=why) as error:
        load(path)
    assert "own.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_name_says_which_there_are():
    with pytest.raises(ConfigError, match="those that ship: canary_rollout"):
        load("nobody")


def test_a_file_with_a_mark_of_byte_order_and_long_lines_reads(tmp_path):
    path = tmp_path / "own.toml"
    path.write_bytes(b"\xef\xbb\xbf" + b"[[item]]\r\n" + ROW.replace("\n", "\r\n").encode())
    assert load(str(path)).items[0].text == "t"


# --- answers --------------------------------------------------------------------------------


def test_nobody_has_answered_is_never_a_pass():
    outcome = merge(checklist(item("a"), item("b")), {}, {"a": Answer("yes", "Ana")})
    assert [line.result.verdict for line in outcome.lines] == ["pass", "unknown"]
    assert outcome.verdict == "inconclusive"
    assert [line.item.id for line in outcome.open] == ["b"]
    assert outcome.lines[0].by == "Ana"


@pytest.mark.parametrize(
    ("verdicts", "severity", "whole"),
    [
        (("pass", "pass"), "must", "pass"),
        (("pass", "warn"), "must", "warn"),
        (("fail", "unknown"), "must", "fail"),
        (("unknown", "warn"), "must", "inconclusive"),
        (("fail", "pass"), "should", "warn"),
        (("unknown", "pass"), "should", "warn"),
    ],
)
def test_the_verdict_of_the_whole(verdicts, severity, whole):
    items = [item(name, "auto", severity) for name in "ab"]
    results = {name: ItemResult(v, "seen") for name, v in zip("ab", verdicts, strict=True)}
    outcome = merge(checklist(*items), results, {})
    assert outcome.verdict == whole
    assert sum(outcome.counts().values()) == 2


def test_no_fails_and_n_a_needs_a_reason():
    both = checklist(item("a"), item("b", severity="should"), item("c"))
    given = {"a": Answer("no", note="not yet"), "b": Answer("no"),
             "c": Answer("n/a", note="one replica")}  # fmt: skip
    outcome = merge(both, {}, given)
    assert [line.result.verdict for line in outcome.lines] == ["fail", "warn", "pass"]
    assert outcome.lines[0].result.evidence == "answered no: not yet"
    assert outcome.lines[2].result.evidence == "does not apply: one replica"
    with pytest.raises(ConfigError, match="say in `note`"):
        Answer("n/a")
    with pytest.raises(ConfigError, match="maybe"):
        Answer("maybe")


def test_a_human_answers_only_what_the_tool_cannot_see():
    one = checklist(item("a", "auto"))
    unseen = {"a": ItemResult("unknown", "not reported")}
    outcome = merge(one, unseen, {"a": Answer("yes", "Ana", "looked at the rack")})
    assert outcome.lines[0].result.verdict == "pass"
    assert "not seen by the tool: not reported" in outcome.lines[0].result.evidence
    for verdict in ("fail", "warn", "pass"):
        with pytest.raises(ConfigError, match="only what the tool cannot see"):
            merge(one, {"a": ItemResult(verdict, "seen")}, {"a": Answer("yes")})


def test_an_automatic_item_that_nobody_looked_at_is_open():
    assert merge(checklist(item("a", "auto")), {}, {}).verdict == "inconclusive"


def test_an_answer_to_nothing_is_an_error():
    with pytest.raises(ConfigError, match="no item 'z'"):
        merge(checklist(item("a")), {}, {"z": Answer("yes")})


def test_answers_come_from_a_file(tmp_path):
    path = tmp_path / "answers.toml"
    path.write_text('[answers]\na = "yes"\nb = { answer = "no", note = "later", by = "Bo" }\n')
    assert read_answers(path, "Ana") == {
        "a": Answer("yes", "Ana"), "b": Answer("no", "Bo", "later")
    }  # fmt: skip
    path.write_text('a = "yes"\n')
    assert read_answers(path) == {"a": Answer("yes")}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = [", "not valid TOML"), ("answers = 3", "must be a table"),
        ("a = 3", "expected a table"),
        ('a = "perhaps"', "perhaps"),
        ('a = { answer = "yes", mood = "good" }', "unknown key 'mood'"),
        ('a = { note = "x" }', "answer"), ('a = "n/a"', "say in `note`"),
    ],
)  # fmt: skip
def test_an_answers_file_that_is_wrong_is_refused(tmp_path, text, why):
    path = tmp_path / "answers.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_answers(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_answers(tmp_path / "none.toml")


def test_the_template_answers_nothing_until_it_is_filled_in(tmp_path):
    """Even unfilled it is a valid file, and every human item is in it."""
    for name in names():
        found, path = load(name), tmp_path / f"{name}.toml"
        text = template(found)
        path.write_text(text, "utf-8")
        assert read_answers(path) == {}
        filled = tomli.loads(_uncommented(text, found))
        assert set(filled["answers"]) == {one.id for one in found.of_kind("human")}


def _uncommented(text, found):
    ids = tuple(f"# {one.id} = " for one in found.of_kind("human"))
    lines = text.splitlines()
    return "\n".join(line[2:] if line.startswith(ids) else line for line in lines)
