"""Fields that the OpenAI API, vLLM, SGLang and llama.cpp have beyond the plain ones are honoured.

The kind: a field that changes the answer. With it the answer is another, and the one that its
documentation says.
"""

from __future__ import annotations

import json

import pytest

CHAT = [{"role": "user", "content": "the world"}]
OPEN = [*CHAT, {"role": "assistant", "content": "and the "}]
PROMPT = "the world and the"


def answer(served, **body):
    made = served.post(**{"prompt": PROMPT, "max_tokens": 8, "temperature": 0} | body)
    assert made.status_code == 200, made.text
    return made.json()


def text(served, **body):
    return answer(served, **body)["choices"][0]["text"]


def chat(served, **body):
    path = "/v1/chat/completions"
    return served.post(path, **{"messages": CHAT, "max_tokens": 4, "temperature": 0} | body)


def events(response):
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_allowed_tokens_and_bias(served):
    decode = served.engine.loaded.tokenizer.decode
    assert text(served, allowed_token_ids=[70], ignore_eos=True) == decode([70] * 8)
    assert text(served, logit_bias={"71": 100}, ignore_eos=True) == decode([71] * 8)
    assert text(served, logit_bias={"71": -0.0}) == text(served)


def test_bad_words_do_not_come(served):
    plain = text(served, ignore_eos=True)
    word = plain[0]
    other = text(served, ignore_eos=True, bad_words=[word])
    assert not other.startswith(word) and other != plain


def test_penalties_forbid_repeating(served):
    allowed = {"allowed_token_ids": [70, 71, 72, 73], "ignore_eos": True, "max_tokens": 4}
    bias = {"70": 60, "71": 59.5, "72": 59, "73": 58.5}
    free = text(served, **allowed, logit_bias=bias)
    spread = text(served, **allowed, logit_bias=bias, presence_penalty=2, frequency_penalty=2)
    assert len(set(free)) < len(set(spread))
    assert text(served, repetition_penalty=50, ignore_eos=True) != text(served, ignore_eos=True)


def test_min_p_of_one_is_greedy(served):
    hot = {"temperature": 50, "seed": 1, "ignore_eos": True}
    assert text(served, **hot, min_p=1.0) == text(served, ignore_eos=True) != text(served, **hot)
    assert text(served, **hot, top_p=0) == text(served, ignore_eos=True)


@pytest.mark.parametrize("name", ["include_stop_str_in_output", "no_stop_trim"])
def test_the_stop_is_part_of_the_text(served, name):
    plain = text(served, ignore_eos=True)
    stop = plain[2:4]
    cut = answer(served, ignore_eos=True, stop=stop)["choices"][0]
    kept = answer(served, ignore_eos=True, stop=stop, **{name: True})["choices"][0]
    assert kept["text"] == cut["text"] + stop
    assert kept["finish_reason"] == cut["finish_reason"] == "stop"
    streamed = events(served.post(prompt=PROMPT, max_tokens=8, temperature=0, ignore_eos=True,
                                  stop=stop, stream=True, **{name: True}))  # fmt: skip
    assert "".join(e["choices"][0]["text"] for e in streamed) == kept["text"]


def test_a_token_that_stops_is_part_of_the_text(served):
    made = {"allowed_token_ids": [70], "stop_token_ids": [70]}
    decode = served.engine.loaded.tokenizer.decode
    assert text(served, **made) == ""
    assert text(served, **made, include_stop_str_in_output=True) == decode([70])


def test_min_tokens_is_no_less_for_a_stop_string(served):
    allowed = {"allowed_token_ids": [70], "ignore_eos": True}
    word = served.engine.loaded.tokenizer.decode([70])
    assert answer(served, **allowed, stop=word)["usage"]["completion_tokens"] == 1
    late = answer(served, **allowed, stop=word, min_tokens=5)
    assert late["usage"]["completion_tokens"] == 5


def test_prompts_are_truncated(served):
    ids = list(range(10, 40))
    for more, kept in (
        ({"truncate_prompt_tokens": 7}, ids[-7:]),
        ({"truncate_prompt_tokens": 7, "truncation_side": "right"}, ids[:7]),
        ({"truncate_prompt_tokens": 99}, ids),
        ({"truncate_prompt_tokens": -1}, ids),
    ):
        made = answer(served, prompt=ids, **more)
        assert made["usage"]["prompt_tokens"] == len(kept)
        assert made["choices"][0]["text"] == text(served, prompt=kept)
    long = answer(served, prompt=ids * 100, truncate_prompt_tokens=-1)
    assert long["usage"]["total_tokens"] == served.engine.scheduler.max_model_len


@pytest.mark.parametrize("n", [1, 3])
def test_echo(served, n):
    prompts = [PROMPT, "the"]
    plain = answer(served, prompt=prompts, n=n, best_of=n)
    made = answer(served, prompt=prompts, n=n, echo=True)
    said = [prompts[i // n] for i in range(2 * n)]
    texts = [choice["text"] for choice in plain["choices"]]
    assert [c["text"] for c in made["choices"]] == [a + b for a, b in zip(said, texts, strict=True)]
    assert made["usage"] == plain["usage"]
    streamed = [""] * len(said)
    for event in events(served.post(prompt=prompts, n=n, echo=True, max_tokens=8, temperature=0,
                                    stream=True)):  # fmt: skip
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert streamed == [choice["text"] for choice in made["choices"]]
    ids = served.engine.loaded.tokenizer.encode(PROMPT)
    assert text(served, prompt=ids, echo=True) == PROMPT + texts[0]


def test_n_predict_is_llama_cpps_max_tokens(served):
    assert (
        answer(served, max_tokens=None, n_predict=3, ignore_eos=True)["usage"]["completion_tokens"]
        == 3
    )
    most = answer(served, max_tokens=None, n_predict=-1, ignore_eos=True)["usage"]
    assert most["total_tokens"] == served.engine.scheduler.max_model_len


def test_an_answer_goes_on_where_the_last_message_ends(served):
    begun = "<|im_start|>user\nthe world<|im_end|>\n<|im_start|>assistant\nand the "
    ids = served.engine.loaded.tokenizer.encode_trusted(begun)
    for more in ({}, {"add_generation_prompt": False}):
        made = chat(served, messages=OPEN, continue_final_message=True, **more).json()
        assert made["usage"]["prompt_tokens"] == len(ids)
        assert made["choices"][0]["message"]["content"] == text(served, prompt=ids, max_tokens=4)
    without = chat(served, add_generation_prompt=False).json()["usage"]["prompt_tokens"]
    assert without < chat(served).json()["usage"]["prompt_tokens"]


def test_names_that_the_template_does_not_have_are_refused(served):
    for more, param in (
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            "chat_template_kwargs.enable_thinking",
        ),
        ({"documents": [{"text": "x"}]}, "documents"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
    ):
        made = chat(served, **more)
        assert (made.status_code, made.json()["error"]["param"]) == (400, param)
    assert (
        chat(served, chat_template_kwargs={}, documents=[]).json()["usage"]
        == chat(served).json()["usage"]
    )


def test_each_event_has_the_counts_so_far(served):
    options = {"include_usage": True, "continuous_usage_stats": True}
    made = events(chat(served, stream=True, stream_options=options, ignore_eos=True))
    counts = [e["usage"]["completion_tokens"] for e in made if e["usage"]]
    assert counts == sorted(counts) and counts[-1] == counts[-2] == 4
    assert {e["usage"]["prompt_tokens"] for e in made if e["usage"]} == {
        chat(served).json()["usage"]["prompt_tokens"]
    }
    alone = events(chat(served, stream=True, stream_options={"continuous_usage_stats": True}))
    assert not any("usage" in e for e in alone)
