"""The official client, unchanged, against a served engine."""

import openai
import pytest

from engine.core import completion
from engine.request import SamplingParams
from waiting import CEILING_S

MODEL = "tiny-llama"
CHAT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the world"}]


def inside(served, prompt, **params):
    """The same request, without HTTP."""
    return completion(served.engine.submit(prompt, SamplingParams(**params)), timeout=CEILING_S)


@pytest.fixture(scope="module")
def client(served):
    with served.client() as client:
        yield client


def chat(client, **more):
    return client.chat.completions.create(
        **{"model": MODEL, "messages": CHAT, "temperature": 0, "max_tokens": 12} | more
    )


def complete(client, **more):
    return client.completions.create(
        **{"model": MODEL, "prompt": "the world", "temperature": 0, "max_tokens": 12} | more
    )


def texts(chunks, choices=1):
    """Joined text of each choice of a chat stream, and how each ended."""
    joined, ends = [""] * choices, [None] * choices
    for chunk in chunks:
        for choice in chunk.choices:
            assert ends[choice.index] is None
            joined[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason
    return joined, ends


def test_a_chat_is_what_the_engine_answers(served, client):
    answer = chat(client)
    own = inside(served, CHAT, max_tokens=12)
    assert answer.choices[0].message.content == own.text
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == own.finish_reason.value
    assert answer.usage.prompt_tokens == own.prompt_tokens
    assert answer.usage.completion_tokens == len(own.token_ids)
    assert answer.usage.total_tokens == own.prompt_tokens + len(own.token_ids)
    assert answer._request_id == answer.id


def test_a_streamed_chat_is_the_same_in_pieces(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert texts(chunks) == ([whole.choices[0].message.content], ["length"])
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.model_dump() == whole.usage.model_dump()
    assert len({c.id for c in chunks}) == 1


def test_no_usage_where_none_was_asked_for(client):
    assert all(c.choices and c.usage is None for c in chat(client, stream=True))


def test_completions_of_text_ids_and_several_prompts(served, client):
    ids = [5, 6, 7, 8]
    assert complete(client).choices[0].text == inside(served, "the world", max_tokens=12).text
    assert complete(client, prompt=ids).choices[0].text == inside(served, ids, max_tokens=12).text
    several = complete(client, prompt=["the world", "and a"], n=2)
    assert [c.index for c in several.choices] == [0, 1, 2, 3]
    assert several.choices[0].text == several.choices[1].text
    assert several.choices[2].text == inside(served, "and a", max_tokens=12).text
    alone = [complete(client, prompt=p).usage.prompt_tokens for p in ("the world", "and a")]
    assert several.usage.prompt_tokens == sum(alone)
    assert several.usage.completion_tokens == 4 * 12
    streamed = [""] * 4
    for chunk in complete(client, prompt=["the world", "and a"], n=2, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == [c.text for c in several.choices]


def test_completions_default_to_sixteen_tokens_and_chats_to_what_fits(served, client):
    short = client.completions.create(
        model=MODEL, prompt="a", temperature=0, extra_body={"ignore_eos": True}
    )
    assert short.usage.completion_tokens == 16
    full = client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, extra_body={"ignore_eos": True}
    )
    assert full.usage.total_tokens == served.engine.scheduler.max_model_len
    assert full.choices[0].finish_reason == "length"


def test_choices_of_one_seed_differ_and_come_again(client):
    more = {"temperature": 1.5, "seed": 11}
    three = [c.message.content for c in chat(client, n=3, **more).choices]
    assert len(set(three)) == 3
    assert three == [c.message.content for c in chat(client, n=3, **more).choices]
    again = [chat(client, temperature=1.5, seed=11 + i).choices[0] for i in range(3)]
    assert three == [c.message.content for c in again]
    streamed, ends = texts(chat(client, n=3, stream=True, **more), 3)
    assert (streamed, ends) == (three, ["length"] * 3)
    assert chat(client, temperature=1.5, seed=-5).choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_k33_a_stop_string_ends_and_never_shows(client, stream):
    text = complete(client, max_tokens=60).choices[0].text
    word = text[20:23]
    cut = text[: text.find(word)]
    if stream:
        chunks = list(complete(client, max_tokens=60, stop=[word, "§"], stream=True))
        assert "".join(c.choices[0].text for c in chunks) == cut
        assert chunks[-1].choices[0].finish_reason == "stop"
    else:
        answer = complete(client, max_tokens=60, stop=word).choices[0]
        assert (answer.text, answer.finish_reason) == (cut, "stop")


def test_stop_ids_min_tokens_and_ignored_ends(served, client):
    ids = inside(served, "the world", max_tokens=8, ignore_eos=True).token_ids
    stop = {"stop_token_ids": [ids[3]], "ignore_eos": True}
    short = complete(client, extra_body=stop)
    assert short.choices[0].finish_reason == "stop"
    assert short.usage.completion_tokens == ids.index(ids[3]) + 1
    longer = complete(client, extra_body=stop | {"min_tokens": 12})
    assert (longer.usage.completion_tokens, longer.choices[0].finish_reason) == (12, "length")


def test_log_probabilities_of_a_chat(client):
    answer = chat(client, logprobs=True, top_logprobs=3).choices[0]
    notes = answer.logprobs.content
    assert len(notes) == 12
    for note in notes:
        best = [top.logprob for top in note.top_logprobs]
        assert len(best) == 3
        assert best == sorted(best, reverse=True)
        assert note.logprob == best[0] <= 0  # greedy
        assert note.token == note.top_logprobs[0].token
    data = b"".join(bytes(note.bytes) for note in notes)
    assert data.decode("utf-8", "replace") == answer.message.content
    streamed = [
        note
        for chunk in chat(client, logprobs=True, top_logprobs=3, stream=True)
        for choice in chunk.choices
        if choice.logprobs
        for note in choice.logprobs.content
    ]
    assert streamed == notes
    assert chat(client, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
    assert chat(client).choices[0].logprobs is None


def test_log_probabilities_of_a_completion(client):
    notes = complete(client, logprobs=2).choices[0].logprobs
    assert len(notes.tokens) == len(notes.token_logprobs) == len(notes.top_logprobs) == 12
    for token, value, top in zip(
        notes.tokens, notes.token_logprobs, notes.top_logprobs, strict=True
    ):
        assert top[token] == value == max(top.values())
    lengths = [len(token) for token in notes.tokens]
    assert notes.text_offset == [sum(lengths[:i]) for i in range(12)]
    offsets = [
        offset
        for chunk in complete(client, logprobs=0, stream=True)
        if chunk.choices[0].logprobs
        for offset in chunk.choices[0].logprobs.text_offset
    ]
    assert offsets == notes.text_offset


def test_the_model_is_listed(served, client):
    (model,) = client.models.list()
    assert (model.id, model.owned_by) == (MODEL, "evewatch")
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another/one")


@pytest.mark.parametrize(
    ("more", "kind", "param"),
    [
        ({"model": "another"}, openai.NotFoundError, "model"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"max_tokens": -1}, openai.BadRequestError, "max_tokens"),
        ({"max_tokens": 1.5}, openai.BadRequestError, "max_tokens"),
        ({"max_tokens": "10"}, openai.BadRequestError, "max_tokens"),
        ({"prompt": ""}, openai.BadRequestError, "prompt"),
        ({"prompt": []}, openai.BadRequestError, "prompt"),
        ({"prompt": [[]]}, openai.BadRequestError, "prompt"),
        ({"prompt": [3, "a"]}, openai.BadRequestError, "prompt"),
        ({"prompt": [10**6]}, openai.BadRequestError, "prompt"),
        ({"prompt": [5] * 600}, openai.BadRequestError, "prompt"),
        ({"prompt": "a\0b"}, openai.BadRequestError, "prompt"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"top_p": -0.1}, openai.BadRequestError, "top_p"),
        ({"n": 0}, openai.BadRequestError, "n"),
        ({"n": 100}, openai.BadRequestError, "n"),
        ({"logprobs": 21}, openai.BadRequestError, "logprobs"),
        ({"stop": ["a"] * 17}, openai.BadRequestError, "stop"),
        ({"stop": ["ok", ""]}, openai.BadRequestError, "stop.1"),
        ({"presence_penalty": 2.5}, openai.BadRequestError, "presence_penalty"),
        ({"echo": True, "logprobs": 0}, openai.BadRequestError, "echo"),
        ({"best_of": 2}, openai.BadRequestError, "best_of"),
        ({"logit_bias": {"a": 1}}, openai.BadRequestError, "logit_bias.a"),
        ({"logit_bias": {"9999": 1}}, openai.BadRequestError, "logit_bias"),
        ({"suffix": "x"}, openai.BadRequestError, "suffix"),
        ({"extra_body": {"min_tokens": 13}}, openai.BadRequestError, "min_tokens"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(served, client, more, kind, param):
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            complete(client, stream=stream, **more)
        assert caught.value.body["param"] == param
        assert caught.value.body["message"]
    served.until_idle()


def test_chat_messages_are_checked_too(served, client):
    for messages in (
        [],
        [{"role": "king", "content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    ):
        with pytest.raises(openai.BadRequestError, match="messages"):
            chat(client, messages=messages)
    with pytest.raises(openai.BadRequestError, match="tools"):
        chat(client, tools=[{"type": "function", "function": {"name": "f"}}])
    served.until_idle()


def test_what_changes_nothing_is_accepted(client):
    plain = chat(client).choices[0].message.content
    parts = [{"role": "developer", "content": [{"type": "text", "text": "be "},
             {"type": "text", "text": "brief"}]}, CHAT[1]]  # fmt: skip
    same = chat(
        client,
        messages=parts,
        n=1,
        frequency_penalty=0,
        logit_bias={},
        response_format={"type": "text"},
        user="somebody",
        metadata={"a": "b"},
        max_tokens=None,
        max_completion_tokens=12,
        extra_body={"top_k": -1, "priority": -3, "repetition_penalty": 1.0},
    )
    assert same.choices[0].message.content == plain


def test_far_too_many_tokens_are_clamped(served, client):
    answer = complete(client, max_tokens=10**9, extra_body={"ignore_eos": True})
    assert answer.usage.total_tokens == served.engine.scheduler.max_model_len


def test_k35_white_space_is_a_prompt(client):
    assert complete(client, prompt=" \n").usage.completion_tokens > 0
