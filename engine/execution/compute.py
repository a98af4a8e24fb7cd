"""The model as a Loop's compute: runner and sampler behind one object."""

from __future__ import annotations

from dataclasses import dataclass

from engine.execution.draft_model import DraftModel
from engine.execution.kv_cache import KvCache
from engine.execution.runner import ModelRunner
from engine.execution.sampler import Sampler
from engine.models import LoadedModel
from engine.observing.clock import Clock
from engine.scheduling.plan import Computed, ModelFacts, Plan
from engine.scheduling.speculation import verified
from engine.text.tokenizer import Detokenizer
from kernels.dispatch import Backend


@dataclass
class ModelCompute:
    """Plan → Batch → logits → tokens, each part timed by `clock`."""

    loaded: LoadedModel
    cache: KvCache
    runner: ModelRunner
    sampler: Sampler
    backend: Backend
    device: str
    clock: Clock
    drafter: DraftModel | None = None

    def __post_init__(self) -> None:
        self.facts = ModelFacts(
            model=self.loaded.spec.name,
            device=self.device,
            kernels=self.backend.name,
            vocab=self.loaded.spec.vocab,
            weight_bytes=self.loaded.model.weight_bytes,
            kv=self.cache.facts,
            note="; ".join(self.notes) or None,
            compute=self.loaded.products.compute,
        )

    @property
    def notes(self) -> list[str]:
        """What whoever starts it should know, one line each: slow kernels, odd model files."""
        return list(dict.fromkeys([*self.backend.notes, *self.loaded.notes, *self.cache.notes]))

    @property
    def eos_ids(self) -> frozenset[int]:
        return self.sampler.eos_ids

    @property
    def saturation_ratio(self) -> float | None:
        return self.cache.saturation_ratio

    def run(self, plan: Plan) -> Computed:
        clock = self.clock
        start = clock.ns()
        batch = self.runner.build(plan)
        built = clock.ns()
        logits = self.runner.run(batch)
        ran = clock.ns()
        rows = len(batch.sampling)
        tokens = self.sampler.sample(logits[:rows], batch.sampling, batch.ahead)
        damaged = self.sampler.damaged(logits[rows:], batch.silent)
        sampled = clock.ns()
        pairs = list(zip(batch.sampling, tokens, strict=True))
        kept: dict[str, int] = {}
        if batch.ahead:
            pairs, kept = verified(plan.items, tokens)
            for item in plan.items:
                if item.draft:
                    del item.request.logprobs[kept[item.request.id] :]
        return Computed(pairs, kept, damaged, built - start, ran - built, sampled - ran)

    def detokenizer(self) -> Detokenizer:
        return self.loaded.tokenizer.detokenizer()

    def memory_read_rate(self) -> float | None:
        """Bytes a second that reading memory reaches here; None where it cannot be measured."""
        if self.backend.name != "cpu":
            return None
        from kernels.roofline import memory_read_rate

        return memory_read_rate()
