"""Every field that a client may send to the completion endpoints, and what becomes of it.

A field that changes the answer is honoured or refused by name; what is neither in the models of
schema.py nor here is refused as unknown. `python -m console.server.fields` prints the table of
docs/serving.md.
"""

from __future__ import annotations

import json
from typing import Any

from console.server.errors import bad_request

HARMLESS = ("harmless",)
"""In place of values: whatever is sent, the answer is the same."""

Rows = dict[str, tuple[Any, ...]]

# Of each field the values (beside null) with which it changes nothing; with others it is refused.
OPENAI: Rows = {
    "suffix": ("",),
    "tools": ([],), "tool_choice": ("none", "auto"), "parallel_tool_calls": HARMLESS,
    "functions": ([],), "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},), "modalities": (["text"],), "audio": (),
    "prediction": (), "web_search_options": (), "verbosity": ("medium",),
    "moderation": (), "store": (False,), "metadata": HARMLESS, "prompt_cache_key": HARMLESS,
    "prompt_cache_retention": HARMLESS, "prompt_cache_options": HARMLESS,
    "safety_identifier": HARMLESS, "service_tier": HARMLESS,
}  # fmt: skip
VLLM: Rows = {
    "length_penalty": (1,), "use_beam_search": (False,), "skip_special_tokens": (True,),
    "spaces_between_special_tokens": HARMLESS,
    "prompt_logprobs": (), "logprob_token_ids": (), "return_tokens_as_token_ids": (False,),
    "return_token_ids": (False,), "prompt_embeds": (), "chat_template": (),
    "mm_processor_kwargs": ({},),
    "media_io_kwargs": ({},), "guided_json": (), "guided_regex": (), "guided_choice": (),
    "guided_grammar": (), "guided_decoding_backend": HARMLESS,
    "guided_whitespace_pattern": HARMLESS,
    "structural_tag": (), "structured_outputs": ({},), "logits_processors": ([],),
    "include_reasoning": (True,), "thinking_token_budget": (), "repetition_detection": (),
    "request_id": HARMLESS, "cache_salt": (), "kv_transfer_params": (), "vllm_xargs": ({},),
    "ec_transfer_params": (), "mm_payload": (), "return_mm_kwargs": (False,),
    "return_prompt_text": (False,), "return_token_offsets": (False,),
    "routed_experts_prompt_start": (), "session_id": HARMLESS, "stream_interval": (1,),
    "watermarking": (),
}  # fmt: skip
SGLANG: Rows = {
    "regex": (), "ebnf": (), "json_schema": (), "stop_regex": ([],),
    "lora_path": (), "session_params": (), "separate_reasoning": HARMLESS,
    "stream_reasoning": HARMLESS, "return_hidden_states": (False,),
    "return_routed_experts": (False,), "return_cached_tokens_details": (False,),
    "custom_logit_processor": (), "custom_params": ({},), "rid": HARMLESS, "extra_key": (),
    "bootstrap_host": (), "bootstrap_port": (), "bootstrap_room": (), "data_parallel_rank": (),
    "routed_dp_rank": (), "disagg_prefill_dp_rank": (), "max_dynamic_patch": (),
    "min_dynamic_patch": (), "input_ids": (), "return_meta_info": (False,),
}  # fmt: skip
LLAMA_CPP: Rows = {
    "n_indent": (0,), "n_keep": (0,), "n_discard": HARMLESS, "n_cmpl": (1,),
    "dynatemp_range": (0,), "dynatemp_exponent": HARMLESS, "typical_p": (1,), "typ_p": (1,),
    "tfs_z": (1,), "top_n_sigma": (-1,), "repeat_penalty": (1,), "repeat_last_n": HARMLESS,
    "penalize_nl": HARMLESS, "dry_multiplier": (0,), "dry_base": HARMLESS,
    "dry_allowed_length": HARMLESS, "dry_penalty_last_n": HARMLESS,
    "dry_sequence_breakers": HARMLESS, "xtc_probability": (0,), "xtc_threshold": HARMLESS,
    "mirostat": (0,), "mirostat_tau": HARMLESS, "mirostat_eta": HARMLESS, "adaptive_target": (-1,),
    "adaptive_decay": HARMLESS, "samplers": (), "min_keep": (0,), "grammar": ("",),
    "grammar_lazy": (False,), "grammar_triggers": ([],), "preserved_tokens": ([],),
    "n_probs": (0,), "post_sampling_probs": (False,), "t_max_predict_ms": (0, -1),
    "t_max_prompt_ms": (0, -1), "id_slot": (-1,), "cache_prompt": HARMLESS,
    "n_cache_reuse": HARMLESS, "return_tokens": (False,), "timings_per_token": (False,),
    "return_progress": (False,), "response_fields": ([],), "lora": ([],), "chat_format": (),
    "reasoning_format": ("none", "auto"), "reasoning_budget": (-1,),
    "thinking_forced_open": (False,), "parse_tool_calls": HARMLESS, "backend_sampling": HARMLESS,
    "sse_ping_interval": HARMLESS, "verbose": (False,), "system_prompt": (), "input_prefix": (),
    "input_suffix": (), "input_extra": ([],), "image_data": ([],), "multimodal_data": ([],),
}  # fmt: skip
STREAM_OPTIONS: Rows = {"include_obfuscation": HARMLESS}
MESSAGE: Rows = {"audio": (), "annotations": ([],)}
PART: Rows = {"annotations": ([],)}

ORIGINS = {"OpenAI": OPENAI, "vLLM": VLLM, "SGLang": SGLANG, "llama.cpp": LLAMA_CPP}
REQUEST: Rows = {name: values for rows in ORIGINS.values() for name, values in rows.items()}


def check_extras(extras: dict[str, Any], rows: Rows, where: str = "") -> None:
    """ApiError 400 for the first field that would change the answer, or that nobody knows.
    `where` goes before its name: "messages.3."."""
    for name, value in extras.items():
        param = f"{where}{name}"[:100]
        if name not in rows:
            raise bad_request(
                f"{param}: this server knows no such field; leave it out", param, "unknown_field"
            )
        neutral = rows[name]
        if value is not None and neutral is not HARMLESS and not _is_one_of(value, neutral):
            raise bad_request(
                f"{param}: is not supported by this server; leave it out", param, "unsupported"
            )


def _is_one_of(value: Any, neutral: tuple[Any, ...]) -> bool:
    """JSON's true is no 1."""
    return any(isinstance(value, bool) is isinstance(n, bool) and value == n for n in neutral)


def add_to_schema(schema: dict[str, Any], rows: Rows) -> None:
    """The published JSON Schema takes what `check_extras` lets through, and nothing else."""
    schema["additionalProperties"] = False
    for name, neutral in rows.items():
        schema["properties"][name] = {} if neutral is HARMLESS else {"enum": [None, *neutral]}


def table(honoured: dict[str, list[str]]) -> str:
    """The table of docs/serving.md. `honoured` by where a field stands first."""
    parts = {"`stream_options`": STREAM_OPTIONS, "a message": MESSAGE, "a text part": PART}
    lines = ["| of | honoured | harmless | refused, but with null or what is in brackets |"]
    lines.append("|---|---|---|---|")
    for origin, rows in (ORIGINS | parts).items():
        harmless = [name for name, values in rows.items() if values is HARMLESS]
        refused = [_refused(name, v) for name, v in rows.items() if v is not HARMLESS]
        cells = (origin, _code(honoured.get(origin, [])), _code(harmless), ", ".join(refused))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _refused(name: str, neutral: tuple[Any, ...]) -> str:
    values = ", ".join(json.dumps(value) for value in neutral)
    return f"`{name}`" + (f" ({values})" if neutral else "")


if __name__ == "__main__":
    from console.server.schema import HONOURED

    print(table(HONOURED), end="")
