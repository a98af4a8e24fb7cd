"""A text is recognised by its form: what was put into its places comes out again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.locale import lang
from console.locale.catalogue import texts_of
from console.locale.form import Form
from console.locale.forms import Forms

TEXTS = texts_of(lang.FOLDER / "zh")
PLACE = re.compile(r"\{(\w+)(:n)?\}")
APART = [
    text
    for text in TEXTS
    if PLACE.search(text)
    and not re.search(r"\}\{", text)
    and re.search("[a-zA-Z]", PLACE.sub("", text))
]
"""Forms with words and letters between their places: else nobody could say where one ends."""
ENGLISH = Forms({text: text for text in TEXTS})
"""Says every text as it is: what comes out is what was recognised."""

numbers = st.one_of(
    st.integers(0, 10**6).map(str),
    st.floats(-1e4, 1e4).map("{:,.1f}".format),
    st.floats(0, 1).map("{:.1%}".format),
)
names = st.from_regex(r"[A-Z][A-Z0-9]{1,8}(/[A-Z0-9]{1,4})?", fullmatch=True)


@st.composite
def rendered(draw):
    """A form, what its places hold, and the text."""
    msgid = draw(st.sampled_from(APART))
    values = {m[1]: draw(numbers if m[2] else names) for m in PLACE.finditer(msgid)}
    text = PLACE.sub(lambda m: values[m[1]], msgid).replace("{{", "{").replace("}}", "}")
    return msgid, values, text


@given(rendered())
def test_what_was_put_in_comes_out(case):
    msgid, values, text = case
    assert Form(msgid, msgid).match(text) == values


@given(rendered())
def test_a_text_is_found_among_all_and_says_what_it_said(case):
    _, _, text = case
    assert ENGLISH.translate(text) == " ".join(text.split())


CASES = Forms(
    {
        "{done:n} of {all:n} requests failed": "{all} 个请求中有 {done} 个失败",
        "{done} of {all}": "{all} 中的 {done}",
        "{n} gate": "{n} 个门限",
        "{n} gates": "{n} 个门限",
        "pass": "通过",
        "fail": "失败",
        "the queue": "队列",
        "{what} is full: {why}": "{what}已满：{why}",
        "nobody waits": "没有人等待",
        "Set it back": "改回去",
        "load": "负载",
        "{share:n} to {name}": "{share} 给了 {name}",
        "{a} to {b}": "{a} 到 {b}",
        "{name}: expected at least {least}, got {value}": "{name}：应至少为 {least}，实为 {value}",
        "refused: {why}": "被拒绝：{why}",
        "expected {what}, got {value}": "应为 {what}，实际为 {value}",
        "{path}: cannot be read ({error})": "{path}：无法读取（{error}）",
        "{x} in {y}, {a} in {b}": "{y} 内 {x}，{b} 内 {a}",
        "all the rest of {what}": "{what} 的其余",
        "go on": "继续",
        "go on; give --x": "继续；请给 --x",
        "pages in 8 bits, or in 4": "8 bit 或 4 bit 的页",
        "{what} above {limit:n}": "{what} 高于 {limit}",
        "stopped by {name}: {value:n} is above {limit:n}": "被 {name} 停止：{value} 高于 {limit}",
        "requests: fewer than {least:n}": "requests：少于 {least}",
        "{n} × nobody got a token in {s:n} s": "有 {n} 次 {s} s 内谁都拿不到 token",
        "`{one}` is now `{other}`": "`{one}` 现在是 `{other}`",
    }
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3 of 40 requests failed", "40 个请求中有 3 个失败"),  # the one that says most
        ("3 of 40", "40 中的 3"),
        (
            "all the rest of the queue (nobody waits)",
            "队列（没有人等待）的其余",
        ),  # no blank beside a bracket
        ("1 gate", "1 个门限"),
        ("2 gates", "2 个门限"),
        ("✓ pass", "✓ 通过"),
        ("• pages in 8 bits, or in 4", "• 8 bit 或 4 bit 的页"),  # known as a whole behind its sign
        ("3 pass", "通过 3"),
        ("load 89 %", "负载 89 %"),
        ("the queue (pass)", "队列（通过）"),  # a text and an aside
        ("the queue 3 (1 … 5, pass)", "队列 3（1 … 5、通过）"),
        ("the queue (nobody knows why)", None),
        ("load (pass)", None),  # beside a name
        ("pass (3 pass, 4 gates)", "通过（通过 3、4 个门限）"),  # what was counted
        ("5% to steal", "5% 给了 steal"),  # where a number stands
        ("12:00 to 13:00", "12:00 到 13:00"),
        ("x.toml:3: load: expected at least 1, got 0", "x.toml:3：load：应至少为 1，实为 0"),
        ("load: nobody waits", "load：没有人等待"),  # a name
        ("out of nobody knows what", None),  # not one thing of another
        ("refused: nobody knows why", "被拒绝：nobody knows why"),  # words of others
        ("expected the queue, got -1", "应为队列，实际为 -1"),
        ("the queue is full: nobody waits", "队列已满：没有人等待"),  # whole texts in places
        ("nobody waits: stopped by x: 3 is above 2", "没有人等待：被 x 停止：3 高于 2"),
        (
            "stopped by x: 3 is above 2; stopped by y: 4 is above 2",
            "被 x 停止：3 高于 2；被 y 停止：4 高于 2",
        ),
        ("x.toml:3: requests: fewer than 4", "x.toml:3：requests：少于 4"),  # of any key
        ("--requests: fewer than 4", "--requests：少于 4"),
        ("stalls: 4 × nobody got a token in 2 s", "stalls：有 4 次 2 s 内谁都拿不到 token"),
        ("refused: kv_pages, load, the_queue", "被拒绝：kv_pages, load, the_queue"),  # names
        (
            "expected the queue, got 'no idea: set it back'",
            "应为队列，实际为 'no idea: set it back'",
        ),
        ("refused: AMD EPYC", "被拒绝：AMD EPYC"),
        ("refused: “pass”", "被拒绝：“pass”"),  # as it was said
        ("`--old` is now `pass the queue`", "`--old` 现在是 `pass the queue`"),  # code
        ("fail: nobody waits", "失败：没有人等待"),  # a verdict is no name
        ("the kitchen is full: nobody waits", None),  # which nobody knows
        ("refused: go on; give --x", "被拒绝：继续；请给 --x"),  # known as a whole, stops and all
        ("nobody waits; Set it back", "没有人等待；改回去"),
        ("nobody waits; nobody knows why", None),
        ("Set it back.", "改回去。"),
        ("Set it\n  back", "改回去"),
        ("pass  load 1 %", "通过  负载 1 %"),
        ("/tmp/x: cannot be read (no such thing)", "/tmp/x：无法读取（no such thing）"),
        ("The queue is full: nobody waits", "队列已满：没有人等待"),  # as it stands first in a line
        ("gates: set it back", "gates：改回去"),
        ("a pass through the mountains", None),  # no word is replaced in a sentence
        ("of", None),
        ("", None),
    ],
)
def test_a_text_becomes_whole_or_stays(text, said):
    assert CASES.translate(text) == said


def test_clauses_of_others_stay_beside_ours():
    assert CASES.translate_some("nobody waits; nobody knows why") == "没有人等待；nobody knows why"
    assert CASES.translate_some("nobody knows why; nobody asks") is None


def test_a_long_list_is_not_tried_in_every_way():
    names = ", ".join(f"one thing{i} more" for i in range(200))
    assert CASES.translate(f"refused: {names}") == f"被拒绝：{names}"


def test_a_number_is_no_name():
    only = Forms({"{n:n} requests wait": "{n} 个请求在等"})
    assert only.translate("12,000 requests wait") == "12,000 个请求在等"
    assert only.translate("some requests wait") is None
