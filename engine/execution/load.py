"""From an EngineConfig to what a Loop needs: a model that computes, and its scheduler."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine import models
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution.calibration import Calibration, for_engine
from engine.execution.compute import ModelCompute
from engine.execution.draft_model import DraftModel
from engine.execution.graphs import GraphRunner
from engine.execution.kv_cache import KvCache, layout_for, memory_for, memory_needed
from engine.execution.products import checkpoint_of, notes_on, products_for
from engine.execution.runner import ModelRunner
from engine.execution.sampler import Sampler
from engine.models import LoadedModel, ModelSpec
from engine.observing.clock import Clock, MachineClock
from engine.observing.machine import cores
from engine.scheduling.assemble import make_scheduler
from engine.scheduling.scheduler import Scheduler
from kernels import dispatch
from kernels.dispatch import Backend
from kernels.errors import KernelError


def build(
    config: EngineConfig,
    loaded: LoadedModel | None = None,
    calibration: Calibration | None = None,
    clock: Clock | None = None,
) -> tuple[ModelCompute, Scheduler]:
    """Raises ModelError for the model's files, ConfigError for settings that do not fit.

    `loaded` and `calibration` are used as they are, instead of what `config` names.
    """
    if loaded is None:
        device, backend, loaded = _load(config)
    else:
        device, backend = select_kernels(config, loaded.spec)
    spec = loaded.spec
    max_model_len = min(config.max_model_len or spec.max_positions, spec.max_positions)
    if calibration is None:
        calibration = for_engine(config, spec, loaded.identity)
    layout = layout_for(config, spec.kv_heads, spec.head_dim)
    most = -(-max_model_len // config.page_tokens) * config.max_batch
    cache = KvCache(
        layout,
        spec.layers,
        memory_for(config, device),
        config.max_batch,
        config.token_budget,
        most if config.kv_memory is None else None,
        device,
        calibration,
    )
    kind = _runner_kind(config, device, backend)
    runner = kind(loaded.model, cache, device, config.max_batch, max_model_len)
    sampler = Sampler(frozenset(spec.eos_ids), config.seed, backend.ops.argmax)
    scheduler = make_scheduler(config, cache.pages, config.max_batch, max_model_len)
    clock = clock or MachineClock()
    drafter = None
    if config.speculate != "off":
        _check_exact(backend)
    if config.draft_model is not None:
        drafter = _drafter(
            config, loaded, cache.pages, max_model_len, sampler, backend, device, clock
        )
    compute = ModelCompute(loaded, cache, runner, sampler, backend, device, clock, drafter)
    return compute, scheduler


def _check_exact(backend: Backend) -> None:
    if backend.name != "cpu":
        raise ConfigError(
            f"speculate: the rows of a draft must be computed as decode rows are, to the bit, and "
            f"only the cpu kernels promise that; these are {backend.name}: set it to off"
        )


def _drafter(
    config: EngineConfig,
    loaded: LoadedModel,
    pages: int,
    longest: int,
    sampler: Sampler,
    backend: Backend,
    device: str,
    clock: Clock,
) -> DraftModel:
    """Its cache is fp16, with a page for each of the large model's; `longest`: tokens of a
    request, prompt and output."""
    assert config.draft_model is not None
    checkpoint = models.open_checkpoint(models.resolve(config.draft_model))
    small = models.load(checkpoint, backend.ops, device=device)
    spec, own = small.spec, config.with_(kv_format="fp16", zero_point=False)
    if not small.tokenizer.same_vocabulary(loaded.tokenizer):
        raise ConfigError(
            f"draft_model: {spec.name} has another vocabulary than {loaded.spec.name}: its tokens "
            "mean something else; give a model of the same family"
        )
    layout = layout_for(own, spec.kv_heads, spec.head_dim)
    if (why := backend.ops.misfit(layout, spec.heads)) is not None:
        raise ConfigError(f"draft_model: the {backend.name} kernels cannot serve it: {why}")
    memory = memory_needed(layout, spec.layers, pages, config.max_batch, config.token_budget)
    cache = KvCache(
        layout, spec.layers, memory, config.max_batch, config.token_budget, pages, device
    )
    if spec.max_positions < longest:
        raise ConfigError(
            f"draft_model: {spec.name} takes {spec.max_positions} tokens, fewer than the "
            f"engine's; set max_model_len to {spec.max_positions}"
        )
    runner = ModelRunner(small.model, cache, device, config.max_batch, longest)
    return DraftModel(runner, sampler, clock, config.token_budget)


def select_kernels(config: EngineConfig, spec: ModelSpec) -> tuple[str, Backend]:
    """Device and kernels that `config` asks for, for a model of such a shape.

    Raises ConfigError when they cannot be had.
    """
    layout = layout_for(config, spec.kv_heads, spec.head_dim)
    device = _device(config)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    elif cores() < torch.get_num_threads():  # torch counts cores and knows no quota
        torch.set_num_threads(cores())
    integer = config.compute in ("int16", "mixed", "int8")
    if integer and device != "cpu":
        raise ConfigError(f"compute: products of integers are the CPU's, not {device}'s; use f32")
    try:
        picked = dispatch.select(config.kernels, device, config.require_triton)
        kind = "triton" if config.require_triton else config.kernels
        backend = picked.suited_to(layout, spec.heads, kind)
    except KernelError as error:
        raise ConfigError(str(error)) from error
    if integer and backend.name == "triton":
        raise ConfigError("compute: triton kernels have no products of integers; use f32")
    return device, backend


def _runner_kind(config: EngineConfig, device: str, backend: Backend) -> type[ModelRunner]:
    if not config.cuda_graphs:
        return ModelRunner
    if device != "cuda" or backend.name != "triton":
        raise ConfigError(
            f"cuda_graphs: they need triton kernels on a CUDA device, here it is {device} with "
            f"{backend.reason}; leave them off"
        )
    return GraphRunner


def load_model(config: EngineConfig) -> LoadedModel:
    """The model alone, for those who make several engines of it."""
    return _load(config)[2]


def _load(config: EngineConfig) -> tuple[str, Backend, LoadedModel]:
    """The kernels are chosen before a weight is read: what cannot run says so at once."""
    checkpoint = checkpoint_of(config)
    device, backend = select_kernels(config, checkpoint.spec)
    products = products_for(config, checkpoint, backend)
    loaded = models.load(checkpoint, backend.ops, device=device, products=products)
    notes = (*backend.notes, *notes_on(config, loaded), *loaded.notes)
    return device, backend, replace(loaded, notes=notes)


def _device(config: EngineConfig) -> str:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: cuda was asked for and torch sees no CUDA device; use cpu")
    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return config.device
