"""The two controls of every quality check: one that must pass and one that must fail.

A check that cannot tell them apart proves nothing about what lies between, so its verdict is
inconclusive whatever the numbers say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.execution.calibration import Ranges
from engine.execution.load import select_kernels
from engine.execution.products import checkpoint_of
from engine.models import LoadedModel, assemble
from engine.models.surgery import Pair, WithOutliers
from playbooks.quality.arm import QualityArm
from playbooks.quality.limits import FAIL, PASS, SCORED, LimitResult, judge, verdict
from playbooks.quality.metrics import Scores, summarise
from playbooks.quality.scoring import Text, score
from playbooks.quality.suspects import Suspect, find_suspects

CHUNK = 96
"""The fp16 control splits its texts otherwise than the baseline: the result must not care."""
FACTOR = 32.0
"""By how much injected channels grow, where float16 has room for it."""
HP_ROOM = 16384.0
LAYERS_PER_PAIR = 8


@dataclass(frozen=True)
class Control:
    """What a control was and what became of it."""

    expected: str
    verdict: str
    gates: list[LimitResult]
    note: str
    injected: tuple[Pair, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    missed: tuple[Pair, ...] = ()
    """Injected pairs that the suspects do not name."""

    @property
    def ok(self) -> bool:
        return self.verdict == self.expected and not self.missed


def fp16_control(base: QualityArm, texts: Sequence[Text], done: Callable[[], None]) -> Control:
    """The baseline against itself, in other chunks."""
    again = QualityArm(base.config, base.loaded, longest(texts), CHUNK)
    scores = score(base, [again], texts, done)[0]
    gates = judge(summarise(Scores.join(scores)), SCORED)
    return Control(PASS, verdict(gates), gates, f"{base.config.kv_format} against itself")


def outlier_control(
    config: EngineConfig, base: QualityArm, texts: Sequence[Text], done: Callable[[], None]
) -> Control:
    """int8_tensor on the same model with outlier channels put in: the worst that is offered."""
    most = longest(texts)
    pairs, factor = choose_pairs(ranges_of(plain_arm(config, base.loaded, most), texts[:1]))
    loaded = injected_model(config, base.loaded, pairs, factor)
    plain = plain_arm(config, loaded, most)
    calibration = ranges_of(plain, texts).calibration(loaded.spec.name, loaded.identity, 0)
    tensor = config.with_(kv_format="int8_tensor", zero_point=False, calibration=None)
    arm = QualityArm(tensor, loaded, most, calibration=calibration)
    scores = score(base, [arm], texts, done)[0]
    gates = judge(summarise(Scores.join(scores)), SCORED)
    suspects = find_suspects(arm, plain, max(texts, key=lambda t: len(t.tokens)).tokens)
    missed = tuple(pair for pair in pairs if not named(pair, suspects, loaded.spec.head_dim))
    note = f"int8_tensor with {len(pairs)} RoPE pairs of K made {factor:g} × as large"
    return Control(FAIL, verdict(gates), gates, note, tuple(pairs), tuple(suspects), missed)


def plain_arm(config: EngineConfig, loaded: LoadedModel, most: int) -> QualityArm:
    """The model on fp16, for texts of up to `most` tokens."""
    plain = config.with_(kv_format="fp16", zero_point=False, calibration=None)
    return QualityArm(plain, loaded, most)


def choose_pairs(ranges: Ranges) -> tuple[list[Pair], float]:
    """The largest pair of every eighth layer, two layers at least; and the factor.

    The largest, so that the layer's scale grows by the whole factor.
    """
    layers, _, dim = ranges.k_max.shape
    count = min(max(layers // LAYERS_PER_PAIR, 2), layers)
    pairs = []
    for i in range(count):
        layer = (2 * i + 1) * layers // (2 * count)
        reach = ranges.k_max[layer].view(-1, 2, dim // 2).amax(1)  # [H, D/2]
        head, channel = divmod(int(reach.argmax()), dim // 2)
        pairs.append(Pair(layer, head, channel))
    factor = FACTOR
    while factor > 2 and factor * float(ranges.k_max.max()) > HP_ROOM:
        factor /= 2
    return pairs, factor


def injected_model(
    config: EngineConfig, loaded: LoadedModel, pairs: Sequence[Pair], factor: float
) -> LoadedModel:
    """The model of `config` once more, with `pairs` of K enlarged."""
    device, backend = select_kernels(config, loaded.spec)
    checkpoint = WithOutliers(checkpoint_of(config), pairs, factor)
    mark = f"{loaded.identity}-with-outliers"
    return assemble(checkpoint, backend.ops, loaded.tokenizer, mark, device=device)


def ranges_of(arm: QualityArm, texts: Sequence[Text]) -> Ranges:
    """How far K and V of `texts` reach, on an unquantised arm."""
    spec = arm.loaded.spec
    ranges = Ranges(spec.layers, spec.kv_heads, spec.head_dim)
    for text in texts:
        with arm.feed(text.tokens) as held:
            ranges.take(arm.cache.layers, held.pages, len(text.tokens))
    return ranges


def named(pair: Pair, suspects: Sequence[Suspect], head_dim: int) -> bool:
    """A channel of the pair is among the suspects; the other may be small on this text."""
    channels = pair.channels(head_dim)
    return any(s.layer == pair.layer and s.channel in channels for s in suspects)


def longest(texts: Sequence[Text]) -> int:
    return max(len(text.tokens) for text in texts)
