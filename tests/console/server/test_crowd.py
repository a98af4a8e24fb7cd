"""64 official clients at once, streaming, mixed lengths, a fifth of them leaving: no error, no
mixed output, nothing held afterwards."""

import asyncio
import random

import openai
import pytest

from engine.request import SamplingParams
from engine.text.completion import completion
from playbooks.measure.crosstalk import MARKS
from served import serving
from waiting import CEILING_S

CLIENTS = 64


def chat(client):
    mark = MARKS[client % len(MARKS)]
    return [{"role": "user", "content": f"My word is {mark} {client}. Say it again."}]


def length(client):
    return random.Random(client).randrange(4, 56)


def leaves(client):
    return client % 5 == 4


async def one(asking, client):
    stream = await asking.chat.completions.create(
        model="tiny-llama",
        messages=chat(client),
        max_tokens=length(client) if not leaves(client) else 200,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    text, usage, taken = "", None, 0
    async with stream:
        async for chunk in stream:
            usage = chunk.usage or usage
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            taken += 1
            if leaves(client) and taken == 1 + client % 3:
                return text, None
    return text, usage


async def crowd(served):
    """All of them wait before the first is let in, so that the engine is full at once."""
    served.engine.set_paused(True)
    async with openai.AsyncOpenAI(
        base_url=f"{served.url}/v1", api_key="-", max_retries=0, timeout=CEILING_S
    ) as asking:
        answers = asyncio.gather(*(one(asking, i) for i in range(CLIENTS)))
        while served.server.app.admission.choices < CLIENTS and not answers.done():
            await asyncio.sleep(0.01)
        served.engine.set_paused(False)
        return await answers


@pytest.mark.parametrize("pages", [512, 24])
def test_sixty_four_clients_a_fifth_of_which_leave(pages):
    """The second pool is too small for a full batch: requests are preempted meanwhile."""
    with serving(kernels="cpu", max_batch=16, pages=pages) as served:
        found = asyncio.run(crowd(served))
        served.until_idle()
        assert (served.engine.telemetry.totals["preemptions"] > 0) == (pages == 24)
        assert served.server.app.admission.choices == 0
        alone = [
            completion(
                served.engine.submit(
                    chat(i), SamplingParams(max_tokens=length(i), ignore_eos=True)
                ),
                30,
            )
            for i in range(CLIENTS)
            if not leaves(i)
        ]
        stayed = [answer for i, answer in enumerate(found) if not leaves(i)]
        for (text, usage), own in zip(stayed, alone, strict=True):
            assert text == own.text
            assert usage.completion_tokens == len(own.token_ids)
            assert usage.prompt_tokens == own.prompt_tokens
        assert served.engine.telemetry.finished["error"] == 0
        served.until_idle()
