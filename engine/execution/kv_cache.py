"""The tensors behind the pages: how many fit into the memory given, and where they are."""

from __future__ import annotations

import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution.calibration import Calibration, needs_calibration, unused_lanes
from engine.observing.machine import available_memory
from engine.scheduling.plan import KvFacts
from kernels.layout import FORMATS, HP, LayerKv, PageLayout
from kernels.memory import take, zeros

READY_BYTES = 256 << 20
"""Of the pages, what a CPU has taken (with all slabs) before the first request: the first write
to a huge page costs milliseconds where a hypervisor has to find it, and no step must wait for
that."""

FREE_MEMORY_SHARE = 0.25
"""Of the free memory, when no kv_memory is set."""


class KvCache:
    """Pages, open slabs and scratch of every layer, within `memory` bytes in all.

    Raises ConfigError when not even one page a sequence fits.
    """

    def __init__(
        self,
        layout: PageLayout,
        layers: int,
        memory: int,
        max_batch: int,
        token_budget: int,
        max_pages: int | None = None,
        device: str = "cpu",
        calibration: Calibration | None = None,
    ) -> None:
        self.layout = layout
        self.calibration = calibration
        h, block = layout.kv_heads, layout.block_elements
        self.slabs, scratch = hp_blocks(layout, max_batch, token_budget)
        fixed = memory_needed(layout, layers, 0, max_batch, token_budget)
        self.pages = (memory - fixed) // (layers * layout.page_bytes)
        if max_pages is not None:
            self.pages = min(self.pages, max_pages)
        if self.pages < max_batch:
            least = memory_needed(layout, layers, max_batch, max_batch, token_budget)
            raise ConfigError(
                f"kv_memory: {_size(memory)} is too little for max_batch {max_batch}; "
                f"give at least {_size(least, up=True)} or lower max_batch"
            )
        self.bytes = memory_needed(layout, layers, self.pages, max_batch, token_budget)
        pages = _room((layers, self.pages, h, layout.head_bytes), torch.uint8, device)
        slabs = _room((layers, self.slabs, h, 2, block), HP, device)
        shared = _room((scratch, h, 2, block), HP, device)
        if torch.device(device).type == "cpu":
            first = READY_BYTES // (layers * layout.page_bytes)
            for part in (*pages[:, :first], slabs, shared):
                take(part)
        self._written = torch.zeros((layers, 2), dtype=torch.int64, device=device)
        self.layers = [
            LayerKv(layout, pages[i], slabs[i], shared, *self._calibrated(i, device))
            for i in range(layers)
        ]

    def _calibrated(
        self, layer: int, device: str
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Outlier lanes, static scales of K and V, and the counter of what they clipped."""
        layout, calibration = self.layout, self.calibration
        lanes = unused_lanes(layout) if calibration is None else calibration.lanes(layer, layout)
        if calibration is None or not needs_calibration(layout.fmt):
            return lanes.to(device), None, None, None
        k, v = calibration.static_scales(layer, layout.fmt)
        return lanes.to(device), k.to(device), v.to(device), self._written[layer]

    @property
    def notes(self) -> list[str]:
        """What whoever starts it should know of the format, one line each."""
        if self.calibration is not None or self.layout.fmt.k_bits != 4:
            return []
        return [
            f"kv_format: {self.layout.fmt.name} has no calibration of this model, so no channel of "
            "K keeps 16 bits, which made the divergence 1.5 times as large on the embedded model; "
            "`evewatch model calibrate` makes one"
        ]

    @property
    def saturation_ratio(self) -> float | None:
        """Share of all values written that a static scale clipped; None without such scales."""
        if self.layers[0].saturated is None:
            return None
        written, clipped = self._written.sum(0).tolist()
        return clipped / written if written else None

    @property
    def bytes_per_token(self) -> float:
        """K and V of all layers, sealed."""
        return self.layout.bytes_per_token * len(self.layers)

    @property
    def facts(self) -> KvFacts:
        layout, layers = self.layout, len(self.layers)
        return KvFacts(
            format=layout.fmt.name,
            page_bytes=layout.page_bytes * layers,
            slab_bytes=layout.slab_bytes * layers,
            pool_bytes=self.bytes,
            bytes_per_token=self.bytes_per_token,
            fp16_bytes_per_token=layout.fp16_bytes_per_token * layers,
        )


def hp_blocks(layout: PageLayout, max_batch: int, token_budget: int) -> tuple[int, int]:
    """Open slabs (in every layer) and scratch blocks (shared by all layers)."""
    if not layout.fmt.open_page:
        return 0, 0
    return max_batch, token_budget // layout.page_tokens + max_batch


def memory_needed(
    layout: PageLayout, layers: int, pages: int, max_batch: int, token_budget: int
) -> int:
    """Bytes of a cache of `pages` pages, slabs and scratch included."""
    slabs, scratch = hp_blocks(layout, max_batch, token_budget)
    return (layers * slabs + scratch) * layout.slab_bytes + layers * pages * layout.page_bytes


def layout_for(config: EngineConfig, kv_heads: int, head_dim: int) -> PageLayout:
    fmt = FORMATS[config.kv_format]
    outliers = min(config.outlier_channels, head_dim) if fmt.has_outliers else 0
    return PageLayout(fmt, kv_heads, head_dim, config.page_tokens, outliers, config.zero_point)


def memory_for(config: EngineConfig, device: str = "cpu") -> int:
    """kv_memory, or a share of what is free on the device now (bytes)."""
    if config.kv_memory is not None:
        return config.kv_memory
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0] * FREE_MEMORY_SHARE)
    return int(available_memory() * FREE_MEMORY_SHARE)


def _size(size: int, up: bool = False) -> str:
    """In the words of a setting, of three digits or more, rounded down or up."""
    shift, letter = (20, "M") if size >= 100 << 20 else (10, "K") if size >= 100 << 10 else (0, "")
    return f"{-(-size >> shift) if up else size >> shift}{letter}"


def _room(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Not written to yet, so that on the CPU it takes no memory yet."""
    if torch.device(device).type == "cpu":
        return zeros(shape, dtype)
    return torch.empty(shape, dtype=dtype, device=device)
