"""Every field that clients know is honoured, harmless or refused by name; nothing is dropped."""

import openai.types.chat.completion_create_params as chat_params
import openai.types.completion_create_params as plain_params
import pytest

from console.server import fields, messages
from console.server.errors import ApiError
from console.server.schema import HONOURED, ChatRequest, CompletionRequest, Message, read
from engine.text.chat import ChatTemplate
from repository import ROOT

CHAT = {"messages": [{"role": "user", "content": "a"}]}
KINDS = ((ChatRequest, CHAT), (CompletionRequest, {"prompt": "a"}))
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": "north"}'}}


def refusal(kind, body):
    with pytest.raises(ApiError) as caught:
        read(kind, body)
    assert caught.value.status == 400
    return caught.value.param


def test_the_documented_table_is_the_codes():
    assert fields.table(HONOURED) in (ROOT / "docs" / "serving.md").read_text("utf-8")


def test_every_field_has_one_fate():
    of_models = {*ChatRequest.model_fields, *CompletionRequest.model_fields}
    assert not of_models & set(fields.REQUEST)
    assert of_models == {*HONOURED["OpenAI"], *HONOURED["vLLM"]}
    rows = list(fields.ORIGINS.values())
    assert sum(map(len, rows)) == len(fields.REQUEST)  # none stands in two


@pytest.mark.parametrize("made_for", [chat_params, plain_params])
def test_all_that_the_official_client_sends_is_known(made_for):
    names = set()
    for kind in vars(made_for).values():
        if isinstance(kind, type) and kind.__name__.startswith("CompletionCreateParams"):
            names |= set(getattr(kind, "__annotations__", {}))
    assert {"model", "stream", "temperature"} <= names
    known = {*HONOURED["OpenAI"], *HONOURED["vLLM"], *fields.REQUEST}
    assert names <= known


@pytest.mark.parametrize(("kind", "body"), KINDS)
@pytest.mark.parametrize("name", sorted(fields.REQUEST))
def test_what_changes_the_answer_is_refused_by_name(name, kind, body):
    neutral = fields.REQUEST[name]
    odd = {"odd": ["value"]}
    assert read(kind, body | {name: None})
    if neutral is fields.HARMLESS:
        assert read(kind, body | {name: odd})
        return
    assert refusal(kind, body | {name: odd}) == name
    for value in neutral:
        assert read(kind, body | {name: value})
        if isinstance(value, int) and not isinstance(value, bool):
            assert read(kind, body | {name: float(value)})
            assert refusal(kind, body | {name: bool(value)}) == name


@pytest.mark.parametrize(("kind", "body"), KINDS)
def test_what_nobody_knows_is_refused_by_name(kind, body):
    assert refusal(kind, body | {"xyzzy": 1}) == "xyzzy"
    assert refusal(kind, body | {"stream_options": {"xyzzy": 1}}) == "stream_options.xyzzy"
    other = "prompt" if kind is ChatRequest else "messages"
    assert refusal(kind, body | {other: "a"}) == other


@pytest.mark.parametrize(
    ("message", "param"),
    [({"xyzzy": 1}, "messages.0.xyzzy"), ({"audio": {"id": "x"}}, "messages.0.audio"),
     ({"content": [{"type": "text", "text": "a", "xyzzy": 1}]}, "messages.0.content.0.xyzzy"),
     ({"tool_calls": [{"x": "\ud800"}]}, "messages.0.tool_calls.0"),
     ({"tool_calls": [{"x": "\0"}]}, "messages.0.tool_calls.0")],
)  # fmt: skip
def test_messages_are_read_as_strictly(message, param):
    body = {"messages": [{"role": "assistant", "content": "a"} | message]}
    assert refusal(ChatRequest, body) == param


# --- what reaches the template ----------------------------------------------------------------

BARE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
FULL = (
    "{% for m in messages %}{{ m.role }}{% if m.name %} ({{ m.name }}){% endif %}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
    "{% if loop.last and m.reasoning_content %}{{ m.reasoning_content }}{% endif %}\n{% endfor %}"
)


def plain(*given):
    return [Message.model_validate(m).plain() for m in given]


def test_a_template_that_takes_everything_is_given_everything():
    said = plain(
        {"role": "user", "name": "ann", "content": "Level?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "3 m"},
        {"role": "assistant", "content": "3 m", "reasoning_content": "thought"},
    )
    render = ChatTemplate(FULL).render
    assert messages.lost(said, render) is None
    assert '{"x": "north"}' in render(said) and "(ann)" in render(said)


def test_what_a_template_leaves_out_is_named():
    render = ChatTemplate(BARE).render
    user = {"role": "user", "content": "Level?"}
    call = {"role": "assistant", "tool_calls": [CALL]}
    assert messages.lost(plain(user, call), render) == "messages.1.tool_calls"
    assert messages.lost(plain(user | {"name": "ann"}, call), render) == "messages.0.name"
    thought = {"role": "assistant", "content": "x", "reasoning_content": "y"}
    assert messages.lost(plain(user, thought), render) == "messages.1.reasoning_content"
    empty = {"role": "assistant", "content": None, "tool_calls": [], "name": None}
    answer = {"role": "tool", "tool_call_id": "c", "content": "3 m"}
    assert messages.lost(plain(user, empty, answer), render) is None


def test_the_server_refuses_what_its_template_leaves_out(served):
    for more, param in (
        ({"tool_calls": [CALL], "content": None}, "messages.1.tool_calls"),
        ({"function_call": {"name": "f"}}, "messages.1.function_call"),
        ({"reasoning_content": "thought"}, "messages.1.reasoning_content"),
        ({"name": "bob"}, "messages.1.name"),
    ):
        said = [*CHAT["messages"], {"role": "assistant", "content": ""} | more]
        made = served.post("/v1/chat/completions", messages=said, max_tokens=2)
        assert made.status_code == 400
        assert made.json()["error"]["param"] == param
    said = [*CHAT["messages"], {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "tool", "tool_call_id": "c", "content": "3 m"}]  # fmt: skip
    made = served.post("/v1/chat/completions", messages=said, max_tokens=2)
    assert made.status_code == 200
    served.until_idle()
