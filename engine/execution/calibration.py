"""Calibration: how large a model's keys, values and activations get, channel by channel.

Three things need it. Formats with an outlier plane keep in hp the K channels that stand far
out of their head; the static formats take all their scales from it; products of integers keep
the columns in float that would take the resolution from others (columns.py). K and V are measured
on the fp16 cache, so after RoPE: the two channels of a RoPE pair turn into one another as the
position grows, therefore outliers come in whole pairs, and a static scale only holds for
contexts as long as those that it was measured on.

A calibration belongs to one model and is refused for any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution.columns import columns_of
from engine.models.spec import ModelSpec
from engine.paths import private_folder, replace_file, user_folder
from kernels.layout import FORMATS, KvFormat, LayerKv, PageLayout

SCHEMA = 1
KIND = "calibration"
OUTLIER_RATIO = 6.0
"""A channel is an outlier when its absolute maximum exceeds so many times its head's median."""
SHIPPED = Path(__file__).parent / "data"
LEAST_SCALE = 2.0**-24
"""A channel that was never anything but zero still needs a scale to divide by."""
DIGITS = 4
"""Significant digits of a maximum in the file, rounded up so that nothing clips."""


@dataclass(frozen=True)
class Outlier:
    """A K channel that stands out."""

    layer: int
    head: int
    """KV head."""
    channel: int
    ratio: float
    """Its absolute maximum over the head's median."""


@dataclass(frozen=True)
class Calibration:
    """Ranges of one model's K (after RoPE) and V, and the K channels to keep in hp."""

    model: str
    identity: str
    """Of the weights: `LoadedModel.identity`."""
    k_max: torch.Tensor
    """float32 [layers, H, D]: absolute maximum of every channel."""
    v_max: torch.Tensor
    outliers: tuple[Outlier, ...]
    """Whole RoPE pairs, the farthest out of each head first."""
    tokens: int
    """Measured on so many."""
    longest: int
    """Of them in the longest context."""
    columns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of the rows of each product, by its name: the columns that stand out, the farthest first."""

    @classmethod
    def from_ranges(
        cls,
        model: str,
        identity: str,
        k_max: torch.Tensor,
        v_max: torch.Tensor,
        tokens: int,
        longest: int,
        channels: int = 4,
        columns: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Calibration:
        """`channels`: most outliers of one head."""
        k_max, v_max = rounded_up(k_max), rounded_up(v_max)
        found = tuple(find_outliers(k_max, channels))
        return cls(model, identity, k_max, v_max, found, tokens, longest, columns or {})

    @property
    def digest(self) -> str:
        """8 hex digits that tell calibrations apart: quantised pages depend on them."""
        return hashlib.blake2b(json.dumps(self.to_dict()).encode(), digest_size=4).hexdigest()

    def lanes(self, layer: int, layout: PageLayout) -> torch.Tensor:
        """int32 [H, n]: the channel of every outlier lane, -1 where a lane is not needed.

        Eight bits need one for channels that stand out alone. Four bits are better for each:
        there the pairs that reach farthest take all lanes.
        """
        lanes = unused_lanes(layout)
        pairs = lanes.shape[1] // 2  # half a RoPE pair would be of no use
        for head in range(layout.kv_heads):
            if layout.fmt.k_bits == 4:
                mine = farthest_pairs(self.k_max[layer, head])
            else:
                mine = [o.channel for o in self.outliers if (o.layer, o.head) == (layer, head)]
            whole = mine[: 2 * pairs]
            lanes[head, : len(whole)] = torch.tensor(whole, dtype=torch.int32)
        return lanes

    def static_scales(self, layer: int, fmt: KvFormat) -> tuple[torch.Tensor, torch.Tensor]:
        """Scales of K and V, float32 [H, D] each: per channel, or one for the whole layer."""
        pair = []
        for what, maxima in ((fmt.k_scale, self.k_max[layer]), (fmt.v_scale, self.v_max[layer])):
            reach = maxima.max().expand_as(maxima) if what == "tensor" else maxima
            pair.append((reach / 127).clamp_min(LEAST_SCALE).contiguous())
        return pair[0], pair[1]

    # --- file -------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """As the file has it."""
        return {
            "schema": SCHEMA,
            "kind": KIND,
            "model": self.model,
            "identity": self.identity,
            "shape": list(self.k_max.shape),
            "tokens": self.tokens,
            "longest": self.longest,
            "outliers": [[o.layer, o.head, o.channel, o.ratio] for o in self.outliers],
            "k_max": _numbers(self.k_max),
            "v_max": _numbers(self.v_max),
            "columns": {name: list(found) for name, found in self.columns.items()},
        }

    def save(self, path: Path) -> None:
        """Raises ConfigError when the file cannot be written."""
        try:
            private_folder(path.parent)
            replace_file(path, f"{json.dumps(self.to_dict())}\n".encode())
        except OSError as error:
            raise ConfigError(f"calibration {path}: cannot be written ({error})") from error

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Raises ConfigError for a file that is missing, damaged or something else."""
        try:
            data = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"calibration {path}: cannot be read ({error})") from error
        if not isinstance(data, dict) or data.get("kind") != KIND or data.get("schema") != SCHEMA:
            raise ConfigError(
                f"calibration {path}: not a calibration; `evewatch model calibrate` writes one"
            )
        try:
            return cls._parse(data)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"calibration {path}: damaged ({error!r}); run `evewatch model calibrate` again"
            ) from error

    @classmethod
    def _parse(cls, data: dict[str, Any]) -> Calibration:
        layers, heads, dim = data["shape"]
        outliers = tuple(
            Outlier(int(a), int(b), int(c), float(r)) for a, b, c, r in data["outliers"]
        )
        for o in outliers:
            if not (0 <= o.layer < layers and 0 <= o.head < heads and 0 <= o.channel < dim):
                raise ValueError(f"outlier {o} is outside {layers} × {heads} × {dim}")
        columns = {str(name): columns_of(row) for name, row in data.get("columns", {}).items()}
        maxima = [_maxima(data[name], (layers, heads, dim)) for name in ("k_max", "v_max")]
        return cls(
            str(data["model"]),
            str(data["identity"]),
            maxima[0],
            maxima[1],
            outliers,
            int(data["tokens"]),
            int(data["longest"]),
            columns,
        )


def _numbers(x: torch.Tensor) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in x.flatten().tolist()]


def _maxima(values: list[float], shape: tuple[int, int, int]) -> torch.Tensor:
    x = torch.tensor(values, dtype=torch.float32).reshape(shape)
    if not (x.isfinite().all() and (x >= 0).all()):
        raise ValueError("a maximum is not a number of at least 0")
    return x


# --- measuring ------------------------------------------------------------------------


class Ranges:
    """Absolute maxima of every channel, read back from the pages of a cache."""

    def __init__(self, layers: int, kv_heads: int, head_dim: int) -> None:
        self.k_max = torch.zeros(layers, kv_heads, head_dim)
        self.v_max = torch.zeros(layers, kv_heads, head_dim)
        self.tokens = self.longest = 0

    def take(self, layers: list[LayerKv], pages: list[int], tokens: int) -> None:
        """One sequence: its `tokens` in `pages`, in order, of an fp16 cache."""
        for i, kv in enumerate(layers):
            k, v = read_back(kv, pages, tokens)
            self.k_max[i] = torch.maximum(self.k_max[i], k.abs().amax(1).cpu())
            self.v_max[i] = torch.maximum(self.v_max[i], v.abs().amax(1).cpu())
        self.tokens += tokens
        self.longest = max(self.longest, tokens)

    def calibration(
        self,
        model: str,
        identity: str,
        channels: int,
        columns: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Calibration:
        return Calibration.from_ranges(
            model, identity, self.k_max, self.v_max, self.tokens, self.longest, channels, columns
        )


def read_back(kv: LayerKv, pages: list[int], tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of a sequence as its pages have them, float32 [H, tokens, D] each."""
    from kernels.reference import dequantise

    k, v = dequantise(kv, torch.tensor(pages, device=kv.pages.device))
    return k[:, :tokens], v[:, :tokens]


def unused_lanes(layout: PageLayout) -> torch.Tensor:
    """Outlier lanes of one layer with nothing in them: int32 [H, n] of -1."""
    n = layout.outliers if layout.fmt.has_outliers else 0
    return torch.full((layout.kv_heads, n), -1, dtype=torch.int32)


def find_outliers(k_max: torch.Tensor, channels: int) -> list[Outlier]:
    """Channels beyond OUTLIER_RATIO and their RoPE partners, at most `channels` of a head.

    k_max: [layers, H, D]. A head's pairs come in the order of their farther channel.
    """
    ratios = outlier_ratios(k_max)
    found = []
    for layer, head in torch.cartesian_prod(*map(torch.arange, k_max.shape[:2])).tolist():
        row = ratios[layer, head]
        order = farthest_pairs(row)[: channels // 2 * 2]
        for pair in zip(order[::2], order[1::2], strict=True):
            if max(row[c] for c in pair) > OUTLIER_RATIO:
                found += [Outlier(layer, head, c, round(float(row[c]), 2)) for c in pair]
    return found


def farthest_pairs(reach: torch.Tensor) -> list[int]:
    """All channels [D] of a head, RoPE pair by pair, in the order of their farther channel."""
    half = reach.shape[-1] // 2
    pairs = torch.maximum(reach[:half], reach[half:]).argsort(descending=True, stable=True)
    return [c for i in pairs.tolist() for c in (i, i + half)]


def outlier_ratios(k_max: torch.Tensor) -> torch.Tensor:
    """Every channel's absolute maximum over its head's median, [..., D] -> [..., D]."""
    return k_max / k_max.median(-1, keepdim=True).values.clamp_min(LEAST_SCALE)


def rounded_up(x: torch.Tensor) -> torch.Tensor:
    """To DIGITS significant digits, never down."""
    exponent = torch.floor(torch.log10(x.double().clamp_min(1e-30))) - (DIGITS - 1)
    step = torch.pow(torch.tensor(10.0, dtype=torch.float64), exponent)
    return (torch.ceil(x.double() / step - 1e-9) * step).float()


# --- finding --------------------------------------------------------------------------


def user_file(identity: str) -> Path:
    """Where `evewatch model calibrate` keeps a model's calibration."""
    return user_folder() / KIND / f"{identity}.json"


def find(identity: str) -> Path | None:
    """The user's calibration of a model, else the one that ships with us, else None."""
    for path in (user_file(identity), SHIPPED / f"{identity}.json"):
        if path.is_file():
            return path
    return None


def for_engine(config: EngineConfig, spec: ModelSpec, identity: str) -> Calibration | None:
    """What the engine's format can use; None when there is nothing and none is needed.

    Raises ConfigError for a calibration of another model, and for a static format without.
    """
    path = Path(config.calibration).expanduser() if config.calibration else find(identity)
    if path is not None:
        calibration = Calibration.read(path)
        _check_match(calibration, path, spec, identity)
        return calibration
    if needs_calibration(FORMATS[config.kv_format]):
        raise ConfigError(
            f"kv_format: {config.kv_format} takes its scales from a calibration and "
            f"{spec.name} has none; run `evewatch model calibrate --model {config.model}`"
        )
    return None


def needs_calibration(fmt: KvFormat) -> bool:
    """The format has scales and none of them is in its pages."""
    return fmt.k_scale in ("static", "tensor")


def _check_match(calibration: Calibration, path: Path, spec: ModelSpec, identity: str) -> None:
    if calibration.identity != identity:
        raise ConfigError(
            f"calibration {path}: is of {calibration.model} ({calibration.identity}), "
            f"not of {spec.name} ({identity}); run `evewatch model calibrate` for this model"
        )
    shape = (spec.layers, spec.kv_heads, spec.head_dim)
    if tuple(calibration.k_max.shape) != shape:
        raise ConfigError(
            f"calibration {path}: has {list(calibration.k_max.shape)} ranges and {spec.name} "
            f"{list(shape)} channels; run `evewatch model calibrate` again"
        )
