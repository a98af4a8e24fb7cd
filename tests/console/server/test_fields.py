"""Every field that clients know is honoured, harmless or refused by name; nothing is dropped."""

import json

import openai.types.chat.completion_create_params as chat_params
import openai.types.completion_create_params as plain_params
import pytest

from console.server import fields
from console.server.errors import ApiError
from console.server.messages import Message, faithful
from console.server.schema import HONOURED, ChatRequest, CompletionRequest, read
from engine.errors import RequestError
from engine.text.chat import ChatTemplate
from engine.text.completion import Chat
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
    assert of_models == {name for origin in fields.ORIGINS for name in HONOURED[origin]}
    rows = list(fields.ORIGINS.values())
    assert sum(map(len, rows)) == len(fields.REQUEST)  # none stands in two


@pytest.mark.parametrize("made_for", [chat_params, plain_params])
def test_all_that_the_official_client_sends_is_known(made_for):
    names = set()
    for kind in vars(made_for).values():
        if isinstance(kind, type) and kind.__name__.startswith("CompletionCreateParams"):
            names |= set(getattr(kind, "__annotations__", {}))
    assert {"model", "stream", "temperature"} <= names
    known = {*HONOURED["OpenAI"], *fields.REQUEST}
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


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (CHAT | {"user": "\0"}, "user: has a null byte"),
        (CHAT | {"stop": "\ud800"}, "stop: is not valid Unicode (a lone surrogate)"),
        (CHAT | {"\ud800": 1}, "the body: is not valid Unicode (a lone surrogate)"),
        (CHAT | {"logit_bias": {"the": 1}}, "logit_bias.the: a key is no token id"),
        ({}, "messages: is missing"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(body, said):
    with pytest.raises(ApiError) as caught:
        read(ChatRequest, body)
    assert caught.value.message == said


# --- what reaches the template ----------------------------------------------------------------

BARE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
FULL = (
    "{% for m in messages %}{{ m.role }}{% if m.name %} ({{ m.name }}){% endif %}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
    "{% if loop.last and m.reasoning_content %}{{ m.reasoning_content }}{% endif %}\n{% endfor %}"
)


def chat(*given, **names):
    return Chat([Message.model_validate(m).plain() for m in given], names=names)


def left_out(template, *given, **names):
    """What is named, or None when nothing is left out."""
    try:
        faithful(chat(*given, **names), template)
    except ApiError as error:
        assert (error.status, error.code) == (400, "unsupported")
        return error.param
    return None


USER = {"role": "user", "content": "Level?"}
CALLS = {"role": "assistant", "tool_calls": [CALL]}
TOOL = {"role": "tool", "tool_call_id": "c", "content": "3 m"}
THOUGHT = {"role": "assistant", "content": "x", "reasoning_content": "thought"}


def test_a_template_that_takes_everything_is_given_everything():
    template = ChatTemplate(FULL)
    said = chat(
        USER | {"name": "ann"}, CALLS | {"content": None}, TOOL,
        {"role": "assistant", "content": "3 m", "reasoning": "thought"},
    )  # fmt: skip
    text = template.render(faithful(said, template))
    assert '{"x": "north"}' in text and "(ann)" in text and "thought" in text


def test_what_a_template_leaves_out_is_named():
    template = ChatTemplate(BARE)
    assert left_out(template, USER, CALLS) == "messages.1.tool_calls"
    assert left_out(template, USER | {"name": "ann"}, CALLS) == "messages.0.name"
    assert left_out(template, USER, THOUGHT) == "messages.1.reasoning_content"
    empty = {"role": "assistant", "content": None, "tool_calls": [], "name": None}
    assert left_out(template, USER, empty, TOOL) is None


def test_a_turn_that_a_template_skips_is_named():
    """Old templates know user and assistant, or one system message: the last, or the first."""
    two = ChatTemplate(
        "{% for m in messages %}{% if m.role in ('user', 'assistant') %}{{ m.content }}{% endif %}"
        "{% endfor %}"
    )
    system = {"role": "system", "content": "Be brief."}
    assert left_out(two, system, USER) == "messages.0.content"
    assert left_out(two, USER, TOOL) == "messages.1.content"
    assert left_out(two, system | {"content": ""}, USER) is None
    json_of = ChatTemplate("{{ messages | tojson(ensure_ascii=true) }}")
    assert left_out(json_of, system, USER, TOOL) is None
    last = ChatTemplate(
        "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}"
        "{% set ns.s = m.content %}{% endif %}{% endfor %}{{ ns.s }}{{ messages[-1].content }}"
    )
    assert left_out(last, system, USER) is None
    assert left_out(last, system, system | {"content": "And kind."}, USER) == "messages.0.content"


def test_a_template_may_leave_out_earlier_thoughts():
    """Those of Qwen3 and others do; the client sends back what it was given."""
    template = ChatTemplate(
        "{% for m in messages %}{% if loop.last and m.reasoning_content %}"
        "{{ m.reasoning_content }}{% endif %}{{ m.content }}{% endfor %}"
    )
    assert left_out(template, USER, THOUGHT, USER) is None


def test_a_call_without_content_is_none_to_who_asks():
    """DeepSeek's templates look for `content is none`; others cannot add None to a text."""
    asks = (
        "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.name }}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    template = ChatTemplate(asks)
    assert template.render(faithful(chat(USER, CALLS), template)) == "Level?f"
    adds = ChatTemplate(
        "{% for m in messages %}{{ m.content + m.tool_calls | string }}{% endfor %}"
    )
    assert "north" in adds.render(faithful(chat(USER, CALLS), adds))


def test_thoughts_have_the_templates_own_name():
    each = "{% for m in messages %}{{ m.content }}{{ m.thinking }}{% endfor %}"
    template = ChatTemplate(each)
    assert template.thoughts == "thinking"
    assert template.render(faithful(chat(USER, THOUGHT), template)) == "Level?xthought"
    part = "{% for m in messages %}{{ m.content }}{{ {'type': 'thinking'}.type }}{% endfor %}"
    assert left_out(ChatTemplate(part), USER, THOUGHT) == "messages.1.reasoning_content"


def test_arguments_are_text_to_who_joins_texts():
    """Older templates of DeepSeek and Functionary do; most others write JSON themselves."""
    joins = "{% for c in messages[1].tool_calls %}{{ '>' + c.function.arguments }}{% endfor %}"
    template = ChatTemplate(joins)
    assert template.render(faithful(chat(USER, CALLS), template)) == '>{"x": "north"}'
    both = ChatTemplate("{% if messages[1].content is none %}" + joins + "{% endif %}")
    assert both.render(faithful(chat(USER, CALLS), both)) == '>{"x": "north"}'
    refuses = ChatTemplate("{{ raise_exception('no calls') if messages[1].tool_calls }}")
    with pytest.raises(RequestError, match="no calls"):
        faithful(chat(USER, CALLS), refuses)


def test_names_for_the_template_reach_it_or_are_named():
    template = ChatTemplate(BARE + "{% if enable_thinking is false %}no thoughts{% endif %}")
    assert left_out(template, USER, enable_thinking=False) is None
    assert "no thoughts" in template.render(chat(USER, enable_thinking=False))
    assert left_out(template, USER, thinking=1) == "chat_template_kwargs.thinking"
    for own in ("messages", "tools", "bos_token", "add_generation_prompt"):
        assert left_out(template, USER, **{own: "x"}) == f"chat_template_kwargs.{own}"
    assert left_out(template, USER, documents=[{"text": "x"}]) == "documents"
    assert left_out(template, USER, reasoning_effort="low") == "reasoning_effort"


@pytest.mark.parametrize(
    "arguments",
    ["", "north", "[1]", '{"x": 1, "x": 2}', '{"x": NaN}', "[" * 5000,
     '{"x":' * 900 + "1" + "}" * 900, '{"x": "\\ud800"}', "9" * 5000],
)  # fmt: skip
def test_arguments_that_are_no_plain_object_stay_as_they_came(arguments):
    call = CALL | {"function": {"name": "f", "arguments": arguments}}
    template = ChatTemplate(BARE + "{{ messages[1].tool_calls | tojson }}")
    text = template.render(faithful(chat(USER, CALLS | {"tool_calls": [call]}), template))
    assert json.dumps(arguments, ensure_ascii=False) in text or "ud800" in arguments


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"add_special_tokens": True}, "add_special_tokens"),
        ({"max_tokens": 4, "n_predict": 5}, "n_predict"),
        ({"n_predict": 0}, "n_predict"),
        ({"n_predict": -2}, "n_predict"),
        ({"n_predict": 2, "min_tokens": 3}, "min_tokens"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncation_side": "middle"}, "truncation_side"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids.0"),
        ({"bad_words": [""]}, "bad_words.0"),
        ({"bad_words": "word"}, "bad_words"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": [[1, 2]]}, "logit_bias"),
        ({"min_p": True}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"x": "\ud800"}}, "chat_template_kwargs"),
        ({"documents": ["x"]}, "documents.0"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"messages": [THOUGHT | {"reasoning": "other"}]}, "messages.0"),
    ],
)
def test_what_does_not_fit_together_is_named(body, param):
    assert refusal(ChatRequest, CHAT | body) == param


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
