"""config.json of a Hugging Face folder, read whole: what it says of the decoder."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from engine.errors import ModelError
from engine.models.keys import Keys, is_active
from engine.models.rope import Scaling, scaling_of
from engine.models.spec import FAMILIES, ModelSpec

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""What each family's weights are for; a class of another name computes something else."""

MISTRAL_WINDOW = 4096
"""What the reference takes where a Mistral's configuration has no `sliding_window` at all."""

# not shown
_OTHER = """
architectures transformers_version transformers.js_config torch_dtype dtype tokenizer_class
name_or_path prefix vocab_file is_llama_config attn_implementation torchscript
use_cache output_attentions output_hidden_states output_scores return_dict
return_dict_in_generate gradient_checkpointing chunk_size_feed_forward
initializer_range pretraining_tp max_window_layers
pad_token_id unk_token_id sep_token_id mask_token_id decoder_start_token_id
forced_bos_token_id forced_eos_token_id bos_token eos_token pad_token
task_specific_params problem_type finetuning_task id2label label2id num_labels
model_max_length max_length min_length do_sample temperature top_k top_p typical_p
repetition_penalty length_penalty no_repeat_ngram_size num_beams num_beam_groups
num_return_sequences diversity_penalty early_stopping encoder_no_repeat_ngram_size
remove_invalid_values suppress_tokens begin_suppress_tokens bad_words_ids
exponential_decay_length_penalty
"""
HARMLESS = frozenset(_OTHER.split())
"""About training, generation, labels or software; so are keys that begin with _ (the library's
own) or end in dropout."""

PARTS = ("is_causal", "causal", "use_rope", "use_rotary", "use_rms_norm", "use_gated_mlp")
"""What the decoder has, whatever the spelling of who says that a model goes without it."""

_COMPUTES = re.compile(
    "att|rope|rotary|norm|scal|softcap|multipl|bias|act|expert|moe|rout|window|chunk|layer|head|"
    "mlp|ffn|resid|embed|logit|clip|qk|quant|lora|adapter|posit|alibi|theta|kv|config|map|hidden|"
    "size|dim|gate|sink|sparse|mask|compress|parallel|conv|ssm|block|cap|query|factor|temper|encoder"
)
"""Words of keys that are about the computation. Others that nobody knows are only told."""


class HfConfig:
    """`values` as the file has them; a table `text_config` inside is part of it."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        self._keys = Keys(where, _flat(where, values))
        self.where = where

    def spec(
        self, name: str, has: Collection[str], generation: Keys
    ) -> tuple[ModelSpec, list[str]]:
        """The decoder, and notes: keys that nobody knows. `has`: names of the tensors.

        ModelError for every key that changes the computation in a way that is not applied.
        """
        keys = self._keys
        family = self._family()
        self._refuse_variants()
        hidden, heads = keys.get("hidden_size", int), keys.get("num_attention_heads", int)
        head_dim = self._head_dim(family, hidden, heads)
        theta, (scaling, divisors) = self._rope(head_dim)
        bias = keys.get("attention_bias", bool, False)
        eos, bos = generation.ids("eos_token_id"), keys.ids("bos_token_id")
        own_eos = keys.ids("eos_token_id")
        spec = ModelSpec(
            name=name,
            architecture=family,
            layers=keys.get("num_hidden_layers", int),
            hidden=hidden,
            heads=heads,
            kv_heads=keys.get("num_key_value_heads", int, heads),
            head_dim=head_dim,
            mlp=keys.get("intermediate_size", int),
            vocab=keys.get("vocab_size", int),
            max_positions=self._positions(family),
            norm_eps=keys.get("rms_norm_eps", float, 1e-6),
            rope_theta=theta,
            rope_scaling=scaling,
            rope_divisors=divisors,
            tied=keys.get("tie_word_embeddings", bool, "lm_head.weight" not in has),
            qkv_bias=bias or family == "qwen2",
            out_bias=bias and family != "qwen2",
            qk_norm=family == "qwen3",
            bos=min(bos, default=None),
            eos_ids=frozenset(eos or own_eos),
        )
        return spec, self._rest()

    def _family(self) -> str:
        kind = self._keys.value("model_type")
        family = kind if isinstance(kind, str) and kind in FAMILIES else None
        named = self._keys.value("architectures")
        if family is None or (named and named != [CLASSES[family]]):
            what = (
                ", ".join(map(str, named)) if isinstance(named, list) and named else named or kind
            )
            raise ModelError(
                f"{self.where}: architecture {what!r} is not supported as model_type "
                f"{kind!r}; supported: {', '.join(FAMILIES)} for text generation"
            )
        return family

    def _refuse_variants(self) -> None:
        keys = self._keys
        for key in ("quantization_config", "compression_config"):
            if is_active(keys.value(key)):
                raise ModelError(
                    f"{self.where}: {key}: weights quantised for other software; "
                    "use the original folder or a GGUF file"
                )
        if is_active(keys.value("auto_map")):
            raise ModelError(
                f"{self.where}: auto_map: the model brings code of its own, which is not run"
            )
        for key in ("hidden_act", "hidden_activation"):
            keys.only(key, "silu", "swish")
        for key in ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"):
            self._whole_rotation(keys, key)
        for key in ("embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale"):
            keys.only(key, 1, 1.0)
        for key in PARTS:
            if keys.value(key) is False:
                raise keys.refused(key)
        keys.only("is_decoder", True)
        keys.only("mlp_bias")

    def _whole_rotation(self, keys: Keys, key: str) -> None:
        """Zero is no way to say nothing here: it would be a model without positions."""
        if keys.get(key, float, 1.0) != 1.0:
            raise keys.refused(key)

    def _head_dim(self, family: str, hidden: int, heads: int) -> int:
        given = self._keys.optional("head_dim", int)
        if given is not None:
            return given
        if family == "qwen3":
            return 128  # the reference's own, whatever the hidden size
        if hidden % max(heads, 1):
            raise ModelError(
                f"{self.where}: hidden_size {hidden} does not divide over "
                f"num_attention_heads {heads}, and there is no head_dim"
            )
        return hidden // max(heads, 1)

    def _rope(self, head_dim: int) -> tuple[float, Scaling]:
        """Base and scaling, from rope_parameters (new) or rope_scaling (old) and rope_theta."""
        keys = self._keys
        new, old = keys.table("rope_parameters"), keys.table("rope_scaling")
        tables = [table for table in (new, old) if table.present()]
        thetas = [t for t in (keys.optional("rope_theta", float),
                              *(t.optional("rope_theta", float) for t in tables))
                  if t is not None]  # fmt: skip
        theta = thetas[0] if thetas else 10_000.0
        found: list[Scaling] = []
        for table in tables:
            self._whole_rotation(table, "partial_rotary_factor")
            found.append(scaling_of(table, theta, head_dim))
        if len(set(thetas)) > 1 or len(set(found)) > 1:
            raise ModelError(
                f"{self.where}: rope_theta, rope_scaling and rope_parameters do not agree; "
                "leave one"
            )
        return theta, found[0] if found else ("none", None)

    def _positions(self, family: str) -> int:
        """Within a sliding window full attention is the same thing: it bounds the context."""
        keys = self._keys
        positions = keys.get("max_position_embeddings", int)
        layers = keys.value("layer_types") or ["full_attention"]
        if not isinstance(layers, list) or len(layers) not in (
            1,
            keys.get("num_hidden_layers", int),
        ):
            raise ModelError(f"{self.where}: layer_types is not a list of one kind for each layer")
        odd = [kind for kind in layers if kind not in ("full_attention", "sliding_attention")]
        if odd:
            raise ModelError(f"{self.where}: layer_types: {odd[0]!r} is not supported")
        is_used = keys.get("use_sliding_window", bool, not family.startswith("qwen"))
        by_default = MISTRAL_WINDOW if family == "mistral" and not keys.has("sliding_window") else 0
        window = keys.get("sliding_window", int, by_default)
        if window and (is_used or "sliding_attention" in layers):
            return min(positions, window)
        return positions

    def _rest(self) -> list[str]:
        """Notes on keys that are only unknown; those about the computation are refused."""
        rest = [key for key in self._keys.rest(HARMLESS)
                if not key.startswith("_") and not key.endswith(("dropout", "pdrop"))]  # fmt: skip
        for key in rest:
            if _computes(key, self._keys.value(key)):
                raise self._keys.refused(key)
        return [f"{self.where}: {key} is not known and was left alone" for key in rest]


def _computes(key: str, value: Any) -> bool:
    """The key is about the computation, or one inside its table is."""
    inner = value.items() if isinstance(value, dict) else ()
    return bool(_COMPUTES.search(key.lower())) or any(_computes(k, v) for k, v in inner)


def _flat(where: str, values: dict[str, Any]) -> dict[str, Any]:
    """One table of a configuration that keeps the decoder's part in `text_config`."""
    inner = values.get("text_config")
    if inner is None:
        return values
    if not isinstance(inner, dict):
        raise ModelError(f"{where}: text_config is {inner!r}, not an object")
    outer = {key: value for key, value in values.items() if key != "text_config"}
    inner = {key: value for key, value in inner.items() if value is not None or key not in outer}
    for key, value in inner.items():
        if outer.get(key, value) not in (None, value) and key not in HARMLESS:
            raise ModelError(
                f"{where}: {key} is {outer[key]!r}, in text_config {value!r}; leave one"
            )
    return outer | inner
