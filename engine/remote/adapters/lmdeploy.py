"""LMDeploy (`--enable-metrics`): vLLM's names of the time when it was written."""

from __future__ import annotations

from engine.remote.adapters.base import INSIDE, NO_CAP, Adapter, vllm_names

LMDEPLOY = Adapter(
    name="lmdeploy",
    title="LMDeploy",
    prefixes=("lmdeploy:",),
    names=vllm_names("lmdeploy:"),
    cannot_know=(*INSIDE, NO_CAP, "the size of the KV cache", "preemptions", "why requests ended"),
)
