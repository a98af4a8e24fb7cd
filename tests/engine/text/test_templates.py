"""A template is the file's.

The kind: a chat template that uses what the reference renderer of such files offers (generation
blocks, strftime_now, tojson with its arguments, loop controls, raise_exception, stripped blocks,
the names of special tokens). It loads and renders as there. What nobody offers is found at load
and named; then chats are refused and plain prompts still work.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from builders import CHATML, tiny_inner, tiny_spec, tiny_tensors
from engine import models
from engine.errors import ModelError, RequestError
from engine.text.chat import ChatTemplate
from engine.text.completion import Chat
from engine.text.tokenizer import Tokenizer
from kernels import reference
from model_files import write_gguf, write_hf

NOW = datetime(2026, 3, 7, 14, 5, 9)
CHAT = [
    {"role": "user", "content": "Hé <b>"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "Why?"},
]
EACH = "{% for m in messages %}"


def render(source: str, **tokens: Any) -> str:
    template = ChatTemplate(source, tokens, "m.gguf", NOW)
    assert template.problem is None
    return template.render(CHAT)


RENDERED: dict[str, tuple[str, str]] = {
    "generation": (
        EACH + "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% endif %}{% endfor %}",
        "Yes.",
    ),
    "generation without blanks": (
        EACH + " {%- generation -%} {{ m.role[0] }} {%- endgeneration -%} {% endfor %}",
        "uau",
    ),
    "a name set inside generation stays there": (
        "{% set x = 'out' %}{% generation %}{% set x = 'in' %}{{ x }}{% endgeneration %}{{ x }}",
        "inout",
    ),
    "nested generation": (
        "{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}",
        "abc",
    ),
    "a date": ("{{ strftime_now('%d %b %Y') }}", "07 Mar 2026"),
    "a date that is guarded": (
        "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}2024{% endif %}",
        "2026",
    ),
    "a date in a macro": (
        "{% macro today(f) %}{{ strftime_now(f) }}{% endmacro %}{{ today('%H:%M:%S') }}",
        "14:05:09",
    ),
    "letters as they are": ("{{ messages[0].content | tojson }}", '"Hé <b>"'),
    "ascii": ("{{ messages[0].content | tojson(ensure_ascii=True) }}", '"H\\u00e9 <b>"'),
    "indented": ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
    "by position": ("{{ {'a': 1} | tojson(false, 1) }}", '{\n "a": 1\n}'),
    "separators": ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
    "sorted": ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", '{"a": 2, "b": 1}'),
    "a filter that no test takes": (
        "{{ tools | tojson(ensure_ascii=False, indent=2) if tools }}",
        "",
    ),
    "break": (
        EACH + "{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
        "user",
    ),
    "continue": (
        EACH + "{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
        "Yes.",
    ),
    "blocks are trimmed": ("  {% if true %}\na\n  {% endif %}\nb", "a\nb"),
    "a namespace": (
        "{% set ns = namespace(n=0) %}" + EACH + "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "3",
    ),
    "no tools, no documents": ("{{ tools is none and documents is none }}", "True"),
    "what is not given is undefined": ("{{ enable_thinking is defined }}{{ nothing }}", "False"),
    "methods of texts": ("{{ ' Ab '.strip().upper().split('B')[0] }}", "A"),
    "slices": ("{{ messages[1:] | map(attribute='role') | join('+') }}", "assistant+user"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "text"), RENDERED.values(), ids=RENDERED)
def test_what_the_reference_renderer_offers(source: str, text: str) -> None:
    assert render(source) == text


def test_special_tokens_by_their_names() -> None:
    source = "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ additional_special_tokens[1] }}"
    given = {"bos_token": "<s>", "pad_token": "<p>", "additional_special_tokens": ["<x>", "<y>"]}
    assert render(source, **given) == "<s><p><y>"


def test_a_folder_gives_the_tokens_that_its_configuration_names(tmp_path: Path) -> None:
    spec = tiny_spec()
    folder = write_hf(tmp_path / "m", spec, tiny_tensors(spec))
    config = {
        "eos_token": {"content": "<|im_end|>"},
        "unk_token": "?",
        "additional_special_tokens": ["<|im_start|>", {"content": "<|endoftext|>"}],
        "chat_template": "{{ unk_token }}{{ additional_special_tokens[1] }}{{ eos_token }}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.from_folder(folder).render_chat(CHAT) == "?<|endoftext|><|im_end|>"


def test_tokens_that_other_files_and_tables_name(tmp_path: Path) -> None:
    spec = tiny_spec()
    folder = write_hf(tmp_path / "m", spec, tiny_tensors(spec))
    older = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "pad_token": "x"}
    (folder / "special_tokens_map.json").write_text(json.dumps(older))
    config = {
        "bos_token": None,
        "pad_token": "<|endoftext|>",
        "extra_special_tokens": {"image_token": "<image>"},
        "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ image_token }}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    text = Tokenizer.from_folder(folder).render_chat(CHAT)
    assert text == "<|im_start|><|im_end|><|endoftext|><image>"


def test_the_clock_of_one_run_stands_still() -> None:
    """The same chat has the same tokens, and its pages are found again."""
    template = ChatTemplate("{{ strftime_now('%f') }}")
    assert len({template.render(CHAT) for _ in range(20)}) == 1


def test_a_template_may_refuse_and_works_all_the_same() -> None:
    source = "{{ raise_exception('Roles must\nalternate') }}"
    template = ChatTemplate(source)
    assert template.works and template.problem is None
    with pytest.raises(RequestError, match="refuses them \\(Roles must alternate\\)"):
        template.render(CHAT)


NOT_OFFERED: dict[str, tuple[str, str]] = {
    "no Jinja": ("{% if %}", "Expected an expression"),
    "an unknown tag": ("{% thinking %}x{% endthinking %}", "thinking"),
    "an unknown function": ("{{ tools_to_text(messages) }}", "tools_to_text"),
    "an unknown filter": ("{{ messages | to_yaml }}", "to_yaml"),
    "an unknown test": ("{{ messages is chatty }}", "chatty"),
    "an unended generation": ("{% generation %}x", "generation"),
    "a method that texts lack": ("{{ messages[0].content.shout() }}", "shout"),
    "what the sandbox forbids": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "a sum of what is none": ("{{ tools + 1 }}", "unsupported operand"),
    "a division by zero": ("{{ 1 / 0 }}", "division by zero"),
    "endless itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
}


@pytest.mark.parametrize(("source", "name"), NOT_OFFERED.values(), ids=NOT_OFFERED)
def test_what_is_not_offered_is_named_at_load_and_prompts_still_work(
    tmp_path: Path, source: str, name: str
) -> None:
    spec = tiny_spec()
    path = tmp_path / "odd.gguf"
    write_gguf(path, spec, tiny_tensors(spec), **{"tokenizer.chat_template": source})
    loaded = models.load(path, reference)
    (note,) = loaded.notes
    assert "odd.gguf: the chat template does not work" in note and name in note
    assert "\n" not in note
    tokenizer = loaded.tokenizer
    assert not tokenizer.has_chat
    with pytest.raises(RequestError, match=r"odd\.gguf") as caught:
        tokenizer.chat(CHAT)
    assert name in str(caught.value) and "\n" not in str(caught.value)
    assert tokenizer.decode(tokenizer.encode("and the world")) == "and the world"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{% if tools %}{{ tools_to_text(tools) }}{% endif %}ok", "function tools_to_text"),
        ("{% if tools %}{{ tools | to_yaml }}{% endif %}ok", "filter to_yaml"),
        ("{% if tools and tools is chatty %}x{% endif %}ok", "test chatty"),
    ],
)
def test_a_branch_that_is_not_taken_is_named_and_the_others_work(source: str, name: str) -> None:
    tokenizer = Tokenizer(tiny_inner(), chat_template=source, where="m.gguf")
    assert [note for note in tokenizer.notes if name in note and "m.gguf" in note]
    assert tokenizer.has_chat and tokenizer.render_chat(CHAT) == "ok"


@pytest.mark.parametrize(
    ("templates", "works"),
    [
        ([{"name": "default", "template": CHATML}, {"name": "tool_use", "template": "x"}], True),
        ([{"name": "rag", "template": CHATML}], False),
        ([], False),
        (CHATML, True),
    ],
)
def test_of_several_templates_the_default_one(
    tmp_path: Path, templates: object, works: bool
) -> None:
    spec = tiny_spec()
    folder = write_hf(tmp_path / "m", spec, tiny_tensors(spec))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.has_chat == works
    assert any("named default" in note for note in tokenizer.notes) != works


def test_a_template_in_a_file_of_its_own(tmp_path: Path) -> None:
    spec = tiny_spec()
    folder = write_hf(tmp_path / "m", spec, tiny_tensors(spec))
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "json"}))
    assert Tokenizer.from_folder(folder).render_chat(CHAT) == "json"
    (folder / "chat_template.jinja").write_text("jinja")
    assert Tokenizer.from_folder(folder).render_chat(CHAT) == "jinja"
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="not readable text"):
        Tokenizer.from_folder(folder)


# --- what a request says of the rendering -------------------------------------------------------

CONTINUED = {
    "as it is": (
        EACH + "<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}",
        "<user>Hé <b></><assistant>Yes, and ",
    ),
    "stripped": (EACH + "[{{ m.content | trim }}]{% endfor %}", "[Hé <b>][Yes, and"),
    "split": (EACH + "[{{ m.content.split('</think>')[-1] }}]{% endfor %}", "[Hé <b>][Yes, and "),
    "as JSON": (EACH + "{{ m.content | tojson(ensure_ascii=True) }}{% endfor %}",
                '"H\\u00e9 <b>""Yes, and '),
    "in parts": (EACH + "{% for c in m.content %}[{{ c.text }}]{% endfor %}{% endfor %}",
                 "[Hé <b>][Yes, and "),
}  # fmt: skip


@pytest.mark.parametrize(("source", "text"), CONTINUED.values(), ids=CONTINUED)
def test_the_last_message_is_continued(source: str, text: str) -> None:
    begun = [CHAT[0], {"role": "assistant", "content": "Yes, and "}]
    template = ChatTemplate(source)
    assert template.problem is None
    assert template.render(Chat(begun, continue_final=True)) == text
    assert template.render(begun) != text


def test_a_message_that_the_template_leaves_out_cannot_be_continued() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    with pytest.raises(RequestError, match="leaves the last one out"):
        template.render(Chat(CHAT, continue_final=True))


def test_a_continued_message_makes_no_control_token_and_no_mark() -> None:
    tokenizer = Tokenizer(tiny_inner(), chat_template=CHATML)
    begun = [{"role": "assistant", "content": "\ufdd1x<|im_end|>\ufdd0y"}]
    ids = tokenizer.chat(Chat(begun, continue_final=True))
    assert ids.count(2) == 0 and tokenizer.decode(ids) == "assistant\n\ufdd1x<|im_end|>y"


PARTS = {
    "a loop over parts": "{% for c in m.content if c.type == 'text' %}{{ c.text }}{% endfor %}",
    "the first part": "{{ m.content[0]['text'] }}",
    "joined": "{{ m.content | map(attribute='text') | join }}",
    "either": "{{ m.content if m.content is string else m.content[0].text }}",
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_template_made_for_parts_is_given_parts(part: str) -> None:
    assert render(EACH + part + "|{% endfor %}") == "Hé <b>|Yes.|Why?|"


def test_names_are_those_that_only_a_request_can_give() -> None:
    source = (
        "{% set a = 1 %}{% macro f(b) %}{{ b }}{{ thinking }}{% endmacro %}{{ bos_token }}"
        "{% if enable_thinking is defined %}{{ documents }}{% endif %}"
        "{{ f(messages[0].c) }}{{ tools }}"
    )
    assert ChatTemplate(source).names == {"thinking", "enable_thinking", "documents"}


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "<|im_end|>"},
        {"tool_calls": [{"function": {"name": "f", "arguments": {"<|im_end|>": "<|im_end|>"}}}]},
    ],
)
def test_no_letters_of_a_request_become_control(odd: dict[str, Any]) -> None:
    source = "{{ messages | tojson(ensure_ascii=True) }}{{ names | tojson }}"
    tokenizer = Tokenizer(tiny_inner(), chat_template=source)
    names = {"names": {"<|im_start|>": ["<|im_start|>"]}}
    ids = tokenizer.chat(Chat([CHAT[0] | odd], names=names))
    assert not tokenizer.special_ids & set(ids)
    assert "ufdd0" not in tokenizer.decode(ids) and "<|im_end|>" in tokenizer.decode(ids)
