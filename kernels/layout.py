"""Shapes and bytes of the KV cache: what a page holds, and where.

A *page* keeps P tokens of one sequence for every layer. Inside a layer it is one
block of bytes per KV head, and the block is self-contained (payload, scales and
outlier plane travel together):

    int8_channel   ┌ k [D, P] i8 ┬ v [P, D] i8 ┬ k_scale [D] ┬ v_scale [P] ┬ k_out [n, P] ┐
    k4v4           ┌ k [D/2, P] ┬ v [P/2, D] ┬ k_scale [D] ┬ k_zero [D] ┬ v_scale [g, P]
                   ┬ v_shift [g, P] u8 ┬ k_first, v_first [g, 16] ┬ k_out [n, P] ┐
    fp16           ┌ k [D, P] hp ┬ v [P, D] hp ┐

K is channel-major, so that the scores of P tokens accumulate side by side in vector
registers; V is token-major. An *hp block* is laid out as an fp16 page: open slabs and
per-step scratch use it, so one attention path reads all three.

Four bits count from 0 to 15. A byte holds two neighbours of a column, the even row low: two
channels of K, two tokens of V. K's code 0 means `k_zero`: x = k_zero + code · k_scale. V has a
scale for each of g groups of V_GROUP channels of a token, and their range is made to include 0:
x = (code − v_shift / PARTS) · v_scale. A sequence's first token, on which a good part of all
attention rests, has four bits more, in `k_first` and `v_first`, in rows of 16 channels:
code + (first − 8) / PARTS takes the place of its code. They are written in every page, and read
in a sequence's first.

hp ("high precision") is float16 unless a format says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import torch

from kernels.errors import KernelError

HP = torch.float16
ALIGN = 32
"""Head blocks start on multiples of this many bytes: one AVX2 register."""
V_GROUP = 32
"""Channels of V that share a scale where it covers a group."""
PARTS = 16
"""Of a step of four bits: what `v_shift` counts, and what the first token is rounded to."""


class Code(IntEnum):
    """How the kernels tell formats apart, in C (kv.h) as on a GPU: what differs in code."""

    HALF = 0
    CHANNEL = 1
    TOKEN = 2
    STATIC = 3


@dataclass(frozen=True)
class KvFormat:
    """How K and V are stored once written. Formats differ in data, not in code paths."""

    name: str
    code: Code
    k_bits: int
    """Of a stored value of K: 16, 8 or 4."""
    v_bits: int
    k_scale: str
    """What one K scale covers: none | channel | token | static (channel) | tensor (layer)."""
    v_scale: str
    """The same for V; or group: V_GROUP channels of one token."""
    open_page: bool
    """New tokens wait in an hp slab until their page is full and seals."""
    has_outliers: bool
    """Outlier channels of K may be kept in hp."""

    @property
    def quantised(self) -> bool:
        return self.k_bits < 16


FORMATS: dict[str, KvFormat] = {
    f.name: f
    for f in (
        KvFormat("fp16", Code.HALF, 16, 16, "none", "none", False, False),
        KvFormat("int8_channel", Code.CHANNEL, 8, 8, "channel", "token", True, True),
        KvFormat("k8v4", Code.CHANNEL, 8, 4, "channel", "group", True, True),
        KvFormat("k4v4", Code.CHANNEL, 4, 4, "channel", "group", True, True),
        KvFormat("int8_token", Code.TOKEN, 8, 8, "token", "token", False, True),
        KvFormat("int8_static", Code.STATIC, 8, 8, "static", "static", False, False),
        KvFormat("int8_tensor", Code.STATIC, 8, 8, "tensor", "tensor", False, False),
    )
}

PAYLOAD = {16: HP, 8: torch.int8, 4: torch.uint8}
"""How values of so many bits lie in memory; of 4 bits, two a byte."""


@dataclass(frozen=True)
class Section:
    """One array inside a head block."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count * self.dtype.itemsize


@dataclass(frozen=True)
class PageLayout:
    """Byte layout of one page in one layer: `kv_heads` head blocks of `head_bytes` each."""

    fmt: KvFormat
    kv_heads: int
    head_dim: int
    page_tokens: int = 16
    outliers: int = 0
    """Outlier channels of K kept in hp, per KV head (n). Zero for formats without them."""
    zero_point: bool = False

    @cached_property
    def sections(self) -> dict[str, Section]:
        fmt, d, p, n = self.fmt, self.head_dim, self.page_tokens, self.outliers
        wanted: list[tuple[str, torch.dtype, tuple[int, ...]]] = [
            ("k", PAYLOAD[fmt.k_bits], (d // 2 if fmt.k_bits == 4 else d, p)),
            ("v", PAYLOAD[fmt.v_bits], (p // 2 if fmt.v_bits == 4 else p, d)),
        ]
        scales = {"channel": (d,), "token": (p,), "group": (self.groups, p)}
        for side, what, bits in (("k", fmt.k_scale, fmt.k_bits), ("v", fmt.v_scale, fmt.v_bits)):
            if what in scales:
                wanted.append((f"{side}_scale", HP, scales[what]))
                if what == "group":
                    wanted.append((f"{side}_shift", torch.uint8, scales[what]))
                elif self.zero_point or bits == 4:
                    wanted.append((f"{side}_zero", HP, scales[what]))
        for side, bits in (("k", fmt.k_bits), ("v", fmt.v_bits)):
            if bits == 4:
                wanted.append((f"{side}_first", torch.uint8, (self.groups, V_GROUP // 2)))
        if n and fmt.has_outliers:
            wanted.append(("k_out", HP, (n, p)))
        sections, offset = {}, 0
        for name, dtype, shape in wanted:
            section = Section(name, dtype, shape, offset)
            sections[name] = section
            offset += section.nbytes
        return sections

    @property
    def groups(self) -> int:
        """Groups of V_GROUP channels; the last one may be smaller."""
        return -(-self.head_dim // V_GROUP)

    @cached_property
    def head_bytes(self) -> int:
        """Bytes of one head block, rounded up to ALIGN."""
        used = sum(s.nbytes for s in self.sections.values())
        return -(-used // ALIGN) * ALIGN

    @property
    def page_bytes(self) -> int:
        """Bytes of one page in one layer."""
        return self.kv_heads * self.head_bytes

    @property
    def bytes_per_token(self) -> float:
        """Bytes of K and V per token and layer, once sealed."""
        return self.page_bytes / self.page_tokens

    @property
    def fp16_bytes_per_token(self) -> int:
        """What the same token costs in the fp16 format: the base of every ratio."""
        return 4 * self.head_dim * self.kv_heads

    @property
    def sealed_ratio(self) -> float:
        """Sealed bytes over fp16 bytes (0.57 means 43 % saved)."""
        return self.bytes_per_token / self.fp16_bytes_per_token

    @property
    def block_elements(self) -> int:
        """hp values of K (and again of V) in one head's hp block."""
        return self.head_dim * self.page_tokens

    @property
    def slab_bytes(self) -> int:
        """Bytes of one open slab in one layer; zero for formats that write in place."""
        return self.fp16_bytes_per_token * self.page_tokens if self.fmt.open_page else 0

    def group(self, query_heads: int) -> int:
        """Query heads per KV head. Raises KernelError where they do not divide."""
        if query_heads < 1 or query_heads % self.kv_heads:
            raise KernelError(
                f"{query_heads} query heads do not divide over {self.kv_heads} KV heads"
            )
        return query_heads // self.kv_heads

    def view(self, pages: torch.Tensor, name: str) -> torch.Tensor:
        """Section `name` of every page: [N, H, *shape], sharing memory with `pages`.

        `pages` is uint8 [N, H, head_bytes].
        """
        section = self.sections[name]
        raw = pages[..., section.offset : section.offset + section.nbytes]
        return raw.view(section.dtype).view(*raw.shape[:-1], *section.shape)


@dataclass
class LayerKv:
    """The cache of one layer: tensors that the kernels read and write in place.

    Raises KernelError if a tensor is not what `layout` says: C would write past its end.
    """

    layout: PageLayout
    pages: torch.Tensor
    """uint8 [N, H, head_bytes]"""
    slabs: torch.Tensor
    """hp [S, H, 2, D*P]: open pages, K as [D, P] then V as [P, D]; S = 0 without open pages."""
    scratch: torch.Tensor
    """hp [R, H, 2, D*P]: pages that a prefill chunk fills and seals within one step.
    Shared by all layers of a step."""
    outliers: torch.Tensor
    """int32 [H, n]: channel of each outlier lane; -1 = lane unused."""
    k_static: torch.Tensor | None = None
    """float32 [H, D] scales from calibration (static, tensor formats)."""
    v_static: torch.Tensor | None = None
    saturated: torch.Tensor | None = None
    """int64 [2]: values written, values clipped (static formats count saturation)."""

    def __post_init__(self) -> None:
        layout = self.layout
        heads, d = layout.kv_heads, layout.head_dim
        block = (heads, 2, layout.block_elements)
        self._check("pages", self.pages, torch.uint8, (heads, layout.head_bytes))
        if layout.fmt.open_page:
            self._check("slabs", self.slabs, HP, block)
            self._check("scratch", self.scratch, HP, block)
        if "k_out" in layout.sections:
            self._check("outliers", self.outliers, torch.int32, (layout.outliers,))
            known = (self.outliers >= -1) & (self.outliers < d)
            if len(self.outliers) != heads or not known.all():
                raise KernelError(
                    f"kv outliers: expected channels of {d}, or -1, for {heads} heads"
                )
        if layout.fmt.quantised and "k_scale" not in layout.sections:
            for side in ("k", "v"):
                scale = self.static_scale(side)
                self._check(f"{side}_static", scale, torch.float32, (d,))
                if len(scale) != heads:
                    raise KernelError(f"kv {side}_static: {len(scale)} heads of {heads}")

    def static_scale(self, side: str) -> torch.Tensor:
        """float32 [H, D] of `side` (k or v). Raises KernelError without calibration."""
        scale = self.k_static if side == "k" else self.v_static
        if scale is None:
            raise KernelError(
                f"{self.layout.fmt.name} has no {side} scales: calibrate the model first, "
                "or choose int8_channel"
            )
        return scale

    def _check(
        self, name: str, x: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> None:
        """`shape` without the leading dimension."""
        if x.dtype != dtype or x.shape[1:] != shape or not x.is_contiguous():
            raise KernelError(
                f"kv {name}: expected contiguous {dtype} [*, {', '.join(map(str, shape))}], "
                f"got {x.dtype} {list(x.shape)}"
            )


@dataclass
class KvStep:
    """Where each row of one step's batch lives in the cache; the same for every layer.

    Row r of sequence b is token `context[b] + r` of it. All arrays are int32. Raises KernelError
    where they are not B, W and T long; what the numbers name is the kernels' to check.
    """

    page_tokens: int
    row_start: torch.Tensor
    """[B + 1]: sequence b owns batch rows row_start[b] … row_start[b+1]-1."""
    context: torch.Tensor
    """[B]: tokens of the sequence that are in the cache before this step."""
    table: torch.Tensor
    """[B, W]: page ids in sequence order, -1 past the end (the block table)."""
    slab: torch.Tensor
    """[B]: open slab of the sequence, -1 for formats without."""
    scratch: torch.Tensor
    """[B]: first scratch block of the sequence."""
    positions: torch.Tensor
    """[T]: position of every row."""
    scratch_blocks: int
    """Scratch blocks that the step needs in all."""
    max_context: int
    """Largest context + rows in the batch."""

    def __post_init__(self) -> None:
        sequences = len(self.context)
        lengths = (
            ("row_start", self.row_start, sequences + 1),
            ("table", self.table, sequences),
            ("slab", self.slab, sequences),
            ("scratch", self.scratch, sequences),
            ("context", self.context, sequences),
            ("positions", self.positions, len(self.positions)),
        )
        for name, x, length in lengths:
            dims = 2 if name == "table" else 1
            ready = x.dtype == torch.int32 and x.is_contiguous() and x.dim() == dims
            if not ready or len(x) != length:
                raise KernelError(
                    f"step {name}: expected contiguous int32 [{length}{', W' * (dims - 1)}], "
                    f"got {x.dtype} {list(x.shape)}"
                )

    @classmethod
    def build(
        cls,
        page_tokens: int,
        rows: list[int],
        context: list[int],
        tables: list[list[int]],
        slabs: list[int],
        device: torch.device | str = "cpu",
    ) -> KvStep:
        """From one entry per sequence. Every `rows[b]` is at least 1."""
        width = max((len(t) for t in tables), default=0)
        table = np.full((len(rows), width), -1, np.int32)
        for row, pages in zip(table, tables, strict=True):
            row[: len(pages)] = pages
        return cls.from_arrays(
            page_tokens,
            np.array(rows, np.int32),
            np.array(context, np.int32),
            table,
            np.array(slabs, np.int32),
            device,
        )

    @classmethod
    def from_arrays(
        cls,
        page_tokens: int,
        rows: np.ndarray,
        context: np.ndarray,
        table: np.ndarray,
        slabs: np.ndarray,
        device: torch.device | str = "cpu",
    ) -> KvStep:
        """`build` from int32 arrays [B], and the block table [B, W] as it is."""
        starts = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(rows, out=starts[1:])
        completed = (context + rows - 1) // page_tokens - context // page_tokens
        positions = np.arange(starts[-1], dtype=np.int32) + np.repeat(context - starts[:-1], rows)
        scratch = np.cumsum(completed, dtype=np.int32) - completed

        def tensor(values: np.ndarray) -> torch.Tensor:
            return tensor_of(np.ascontiguousarray(values, np.int32), device)

        return cls(
            page_tokens,
            tensor(starts),
            tensor(context),
            tensor(table),
            tensor(slabs),
            tensor(scratch),
            tensor(positions),
            int(completed.sum()),
            int((context + rows).max(initial=0)),
        )


def tensor_of(values: np.ndarray, device: torch.device | str) -> torch.Tensor:
    """On the CPU it shares the array's memory, and no torch operation runs: between two steps,
    with nothing of torch in the caches, each costs tens of microseconds."""
    found = torch.from_numpy(values)
    return found if str(device) == "cpu" else found.to(device)
