"""The decoder that Llama, Mistral, Qwen2, Qwen3 and SmolLM2 share.

Only the forward pass over a step's rows lives here, written in the operations that every
kernel backend offers. Which tokens are computed, and in which pages their K and V live,
comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

import torch

from engine.errors import ModelError
from engine.models.products import IN_FLOAT, Products
from engine.models.spec import ModelSpec
from engine.models.weights import Checkpoint
from kernels.contract import Accounted, Decoder, DecoderLayer, Operations, Stack
from kernels.decoder import HEAD, layer_by_layer, product_names
from kernels.layout import KvStep, LayerKv
from kernels.weights import RawWeight, Rope

LEFT_ALONE = frozenset({"rope_freqs.weight"})
"""Read with the configuration."""
BUFFERS = (".rotary_emb.inv_freq", ".attention.masked_bias", ".attn.bias")
"""Ends of tensors that software saved and that follow from the configuration."""


class Llama:
    """Built by `Llama.build`; holds weights only, never anything of a request."""

    def __init__(
        self,
        spec: ModelSpec,
        ops: Operations,
        embed: Any,
        layers: Sequence[DecoderLayer],
        norm: torch.Tensor,
        head: Any,
        rope: Rope,
        in_float: int = 0,
    ) -> None:
        self.spec = spec
        self.in_float = in_float
        """Matrices that are multiplied by in float."""
        self._ops = ops
        self._embed = embed
        self._decoder = Decoder(
            layers, norm, head, rope, spec.norm_eps, spec.head_dim**-0.5, spec.vocab
        )

    @classmethod
    def build(
        cls,
        checkpoint: Checkpoint,
        ops: Operations,
        max_positions: int,
        device: torch.device | str = "cpu",
        products: Products = IN_FLOAT,
    ) -> Llama:
        """Read and pack every weight. ModelError names the first one that is not right."""
        spec = checkpoint.spec
        reader = _Reader(checkpoint, ops, device, products)
        tied = HEAD if spec.tied else None
        embed = reader.pack("model.embed_tokens.weight", spec.vocab, spec.hidden, tied)
        head = embed
        if not spec.tied:
            head = reader.pack("lm_head.weight", spec.vocab, spec.hidden, HEAD)
        layers = [reader.layer(i) for i in range(spec.layers)]
        frequencies = torch.tensor(spec.inverse_frequencies(), dtype=torch.float64)
        table = Rope.table(frequencies, max_positions)
        rope = Rope(table.cos.to(device), table.sin.to(device))
        norm = reader.vector("model.norm.weight", spec.hidden)
        reader.refuse_rest()
        return cls(spec, ops, embed, layers, norm, head, rope, reader.in_float)

    @property
    def max_positions(self) -> int:
        """Positions that the RoPE table has: no sequence may be longer."""
        return self._decoder.rope.cos.shape[0]

    @cached_property
    def weight_bytes(self) -> int:
        """What one step reads of the weights, as they are packed: all layers and the head."""
        parts = [getattr(layer, f.name) for layer in self._decoder.layers for f in fields(layer)]
        return sum(part.nbytes for part in [*parts, self._decoder.head] if part is not None)

    def on(self, kv: Sequence[LayerKv]) -> OnCache:
        """The model bound to a cache, one LayerKv a layer: what a runner calls each step."""
        return OnCache(self, self._ops.stack(self._decoder, kv))

    def watched(self, kv: Sequence[LayerKv], see: Callable[[str, torch.Tensor], None]) -> OnCache:
        """As `on`, more slowly: `see` is given each product's name and rows, as they come."""
        return OnCache(self, layer_by_layer(self._ops, self._decoder, kv, see))

    def forward(
        self,
        tokens: torch.Tensor,
        step: KvStep,
        kv: Sequence[LayerKv],
        logit_rows: torch.Tensor,
    ) -> torch.Tensor:
        """One step on a cache that is not kept: see `OnCache`."""
        return self.on(kv)(tokens, step, logit_rows)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._ops.embed(self._embed, tokens)


class OnCache:
    """A model on the tensors of one cache."""

    def __init__(self, model: Llama, stack: Stack) -> None:
        self._model = model
        self._stack = stack

    def __call__(
        self, tokens: torch.Tensor, step: KvStep, logit_rows: torch.Tensor
    ) -> torch.Tensor:
        """tokens int64 [T] -> float32 [R, vocab], logits of batch rows `logit_rows` [R].

        K and V of all T rows are in the cache afterwards.
        """
        return self._stack(self._model.embed(tokens), step, logit_rows)

    def spent_ns(self) -> dict[str, int] | None:
        """Nanoseconds since it was made, by kind of kernel.

        None where the backend keeps no account.
        """
        return self._stack.spent_ns() if isinstance(self._stack, Accounted) else None


class _Reader:
    """Weights of a checkpoint in the shapes that its spec asks for."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        ops: Operations,
        device: torch.device | str,
        products: Products,
    ) -> None:
        self._checkpoint, self._ops, self._device = checkpoint, ops, device
        self._products, self.in_float = products, 0
        self._read: set[str] = set()

    def _matrix(self, name: str, rows: int, cols: int) -> RawWeight:
        self._read.add(name)
        return self._checkpoint.matrix(name, rows, cols)

    def refuse_rest(self) -> None:
        """ModelError for a tensor that no part of the decoder is made of."""
        known = LEFT_ALONE | {"lm_head.weight"}  # a tied head is the embedding
        rest = [n for n in self._checkpoint.tensors
                if n not in self._read and n not in known and not n.endswith(BUFFERS)]  # fmt: skip
        if rest:
            more = f" (and {len(rest) - 1} more like it)" if len(rest) > 1 else ""
            raise ModelError(
                f"{self._checkpoint.path}: tensor {rest[0]}{more} belongs to no part of a "
                f"{self._checkpoint.spec.architecture} as its configuration describes it; the "
                "model would compute something else"
            )

    def pack(self, name: str, rows: int, cols: int, product: str | None) -> Any:
        """`product`: its name, for a matrix that is multiplied by."""
        return self._pack(self._matrix(name, rows, cols), product)

    def stack(self, names: dict[str, int], cols: int, product: str) -> Any:
        """One packed matrix of several, each with its row count."""
        parts = [self._matrix(name, rows, cols) for name, rows in names.items()]
        return self._pack(RawWeight.concat(parts), product)

    def _pack(self, weight: RawWeight, product: str | None) -> Any:
        rounding = None if product is None else self._products.of(product, weight)
        self.in_float += product is not None and rounding is None
        packed = self._ops.pack(weight, rounding)
        # The reference packs into a plain tensor, wherever the file's bytes are.
        return packed.to(self._device) if isinstance(packed, torch.Tensor) else packed

    def vector(self, name: str, size: int) -> torch.Tensor:
        self._read.add(name)
        return self._checkpoint.vector(name, size).to(self._device)

    def layer(self, i: int) -> DecoderLayer:
        at, spec = f"model.layers.{i}.", self._checkpoint.spec
        attn, mlp = at + "self_attn.", at + "mlp."
        qkv, out, gate_up, down = product_names(i)
        queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        rows = {attn + "q_proj": queries, attn + "k_proj": keys, attn + "v_proj": keys}
        bias = [self.vector(f"{n}.bias", size) for n, size in rows.items() if spec.qkv_bias]
        return DecoderLayer(
            attn_norm=self.vector(at + "input_layernorm.weight", spec.hidden),
            qkv=self.stack({f"{n}.weight": size for n, size in rows.items()}, spec.hidden, qkv),
            qkv_bias=torch.cat(bias) if bias else None,
            q_norm=self.vector(attn + "q_norm.weight", spec.head_dim) if spec.qk_norm else None,
            k_norm=self.vector(attn + "k_norm.weight", spec.head_dim) if spec.qk_norm else None,
            out=self.pack(attn + "o_proj.weight", spec.hidden, queries, out),
            out_bias=self.vector(attn + "o_proj.bias", spec.hidden) if spec.out_bias else None,
            mlp_norm=self.vector(at + "post_attention_layernorm.weight", spec.hidden),
            gate_up=self.stack(
                {mlp + "gate_proj.weight": spec.mlp, mlp + "up_proj.weight": spec.mlp},
                spec.hidden,
                gate_up,
            ),
            down=self.pack(mlp + "down_proj.weight", spec.hidden, spec.mlp, down),
        )
