import json
from itertools import pairwise

import pytest

from builders import tiny_tokenizer
from engine.errors import ConfigError
from playbooks.quality.cases import CATEGORIES, QualityCase, every_nth, golden, read_cases


def written(tmp_path, text, name="own.toml"):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_the_golden_set_covers_every_category():
    cases = golden()
    assert len(cases) >= 60
    assert len({case.id for case in cases}) == len(cases)
    assert len({case.prompt for case in cases}) == len(cases)
    assert {case.category for case in cases} == set(CATEGORIES)
    assert all(len(c.messages) >= 3 for c in cases if c.category == "multi_turn")


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0c"])
def test_a_line_ends_at_a_newline_and_nowhere_else(tmp_path, mark):
    rows = [{"prompt": f"One{mark}two"}, {"prompt": "Three"}]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    first, second = read_cases(written(tmp_path, text, "mine.jsonl"))
    assert (first.prompt, second.prompt) == (f"One{mark}two", "Three")


def test_a_line_is_named_as_an_editor_counts_it(tmp_path):
    text = '[[case]]\nprompt = "One\u2028two"\n[[case]]\nprompt = 3\n'
    with pytest.raises(ConfigError, match=":4: prompt: expected a text, got 3"):
        read_cases(written(tmp_path, text))


def test_cases_of_a_toml_file(tmp_path):
    path = written(
        tmp_path,
        """
        [[case]]
        prompt = "Hello"
        [[case]]
        id = "two"
        category = "chat"
        max_tokens = 7
        messages = [{role = "system", content = "Be brief."}, {role = "user", content = "Hi"}]
        """,
    )
    first, second = read_cases(path)
    assert first == QualityCase("own-1", "own", ({"role": "user", "content": "Hello"},))
    assert (second.id, second.category, second.max_tokens) == ("two", "chat", 7)
    assert second.prompt == "Hi"


def test_cases_of_a_json_lines_file(tmp_path):
    rows = [{"prompt": "Hello"}, {"id": "b", "prompt": "Bye"}]
    path = written(tmp_path, "\n\n".join(map(json.dumps, rows)), "mine.jsonl")
    assert [case.id for case in read_cases(path)] == ["mine-1", "b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no cases"),
        ("case = 3", "case: expected a list"),
        ("[[cases]]\nprompt = 'x'", "unknown key 'cases'"),
        ("[[case]]\npromt = 'x'", ":2: unknown key 'promt'; did you mean 'prompt'? known: id"),
        ("[[case]]\nid = 'a'", "either prompt or messages"),
        ("[[case]]\nprompt = 'x'\nmessages = []", "either prompt or messages"),
        ("[[case]]\nprompt = ' '", "a text that says something"),
        ("[[case]]\nprompt = 3", "prompt: expected a text"),
        ("[[case]]\nmessages = []", "one at least"),
        (
            "[[case]]\nmessages = [{role = 'boss', content = 'x'}]",
            "role: expected one of system, user, assistant",
        ),
        ("[[case]]\nmessages = ['x']", "messages[0]: expected a table"),
        ("[[case]]\nprompt = 'x'\nmax_tokens = 0", "max_tokens: expected at least 1"),
        ("[[case]]\nprompt = 'x'\nmax_tokens = true", "max_tokens: expected a whole number"),
        ("[[case]]\nprompt = 'x'\nid = 3", "id: expected a text"),
        ("[[case]]\nid = 'a'\nprompt = 'x'\n[[case]]\nid = 'a'\nprompt = 'y'", "there twice"),
        ("[[case", "not valid TOML"),
    ],
)
def test_a_malformed_file_gets_one_clear_line(tmp_path, text, says):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        read_cases(path)
    line = str(error.value)
    assert says in line and str(path) in line and "\n" not in line


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.jsonl", '{"prompt": "x"}\n{', ":2: not valid JSON"),
        ("a.jsonl", "[1]", ":1: expected a table, got \\[1\\]"),
        ("a.yaml", "x", "expected a .toml or .jsonl file"),
    ],
)
def test_other_files_are_refused_too(tmp_path, name, text, says):
    with pytest.raises(ConfigError, match=says):
        read_cases(written(tmp_path, text, name))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.*cannot be read"):
        read_cases(tmp_path / "nowhere.toml")


def test_a_case_is_a_chat_where_the_model_knows_chats():
    case = QualityCase("a", "own", ({"role": "user", "content": "Hi"},))
    assert case.tokens(tiny_tokenizer())[0] == 1  # <|im_start|>


@pytest.mark.parametrize("wanted", [1, 3, 7, 10, 20])
def test_a_sample_is_evenly_spread(wanted):
    got = every_nth(range(10), wanted)
    assert len(got) == min(wanted, 10) and got[0] == 0
    gaps = {b - a for a, b in pairwise(got)}
    assert not gaps or max(gaps) - min(gaps) <= 1
