"""Faults to find: each puts a known cause into an engine, so that the diagnosis can be tried.

Only by explicit flag, and only in engines that a `Site` makes for its steps: a fault is a set of
settings, another set of weights, or a change to one running engine that is undone on every way
out (playbooks/faults/fault_patches.py). Nothing here reaches another engine of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution.kv_cache import layout_for, memory_needed
from playbooks.checkup.site import Alteration, Site
from playbooks.checkup.watched_load import decode_curve, load_spec
from playbooks.diagnosis import StepCurve
from playbooks.faults import fault_patches, host_faults
from playbooks.load.prompts import TextPrompts
from playbooks.load.workload import Workload
from playbooks.measure.calibrate import long_text
from playbooks.quality.controls import choose_pairs, injected_model, plain_arm, ranges_of
from playbooks.quality.scoring import Text
from playbooks.statistics.knee import DOUBLING_GAIN
from playbooks.steps.models import LoadStep

SAMPLED_REQUESTS = 24
SHRINK = 8
"""Static scales that are so many times too small."""
PAST_KNEE = 4
SLEEPABLE_MS = 3.0
"""Beside so long a step the imprecision of sleeping does not count."""
MANY = 16
CHEAP_ROWS = 64.0
"""Knee of a machine on which a few drafts more are tried."""
SLOWER = 1.5
"""A slower machine's step over this one's: so much noise is drowned."""


@dataclass(frozen=True)
class Fault:
    name: str
    cause: str
    """What a diagnosis must say first."""
    title: str
    make: Callable[[Ground], Alteration]


@dataclass(frozen=True)
class Ground:
    """What a fault needs to know to be as large as it must be: the machine and its load."""

    site: Site
    load: LoadStep
    """The playbook's load step."""

    @cached_property
    def curve(self) -> StepCurve:
        """Step times of the healthy engine."""
        with self.site.engine() as engine:
            curve = decode_curve(engine)
        if curve is None:
            raise ConfigError("faults: the engine has no room for two requests at once")
        return curve

    @cached_property
    def requests(self) -> list[tuple[int, int]]:
        """Prompt and output tokens of the load's first requests."""
        spec, encode = load_spec(self.load), self.site.loaded.tokenizer.encode
        maker = TextPrompts(spec.words_seed, spec.shared_prefix)
        planned = islice(Workload(spec, self.site.loaded.spec.max_positions), SAMPLED_REQUESTS)
        return [(len(encode(maker.make(p.number, p.prompt))), p.output) for p in planned]

    @property
    def longest(self) -> int:
        return max(prompt + output for prompt, output in self.requests)

    @property
    def output(self) -> float:
        return sum(output for _, output in self.requests) / len(self.requests)

    @property
    def solo_ms(self) -> float:
        """A request alone takes about so long."""
        return self.curve.ms(1) * (self.output + 1)

    def pages(self, tokens: float) -> int:
        return -int(-tokens // self.site.config.page_tokens)

    def memory(self, pages: int, config: EngineConfig) -> int:
        """Bytes of a KV cache with exactly so many pages."""
        spec = self.site.loaded.spec
        layout = layout_for(config, spec.kv_heads, spec.head_dim)
        return memory_needed(layout, spec.layers, pages, config.max_batch, config.token_budget)

    def settings(self, **changes: Any) -> EngineConfig:
        """The site's with a batch that moves for nobody."""
        fixed = {"dynamic_batch": False, "min_batch": 1, "tpot_objective_ms": None}
        return self.site.config.with_(**(fixed | changes))

    def slower(self, knee: float) -> StepCurve:
        """Step times of a slower machine whose knee is there, whatever else goes on here."""
        fixed = max(SLOWER * self.curve.fixed_ms, SLEEPABLE_MS)
        return StepCurve(fixed, fixed * (1 - DOUBLING_GAIN) / (2 * DOUBLING_GAIN * knee))

    @property
    def decodes(self) -> dict[str, Any]:
        """A load that is nearly all decoding."""
        return {"lengths": f"lognormal:8,{MANY},0.2", "shared_prefix": 0}


def check_fault(name: str) -> None:
    """Raises ConfigError for one that is not known."""
    if name not in FAULTS:
        raise ConfigError(f"fault {name!r} is not known; known: {', '.join(FAULTS)}")


def inject(name: str, site: Site, load: LoadStep, ground: Ground | None = None) -> Site:
    """The same machine with a fault in its engines. Raises ConfigError for one not known.

    `ground`: what is known of the machine already, from an injection before.
    """
    check_fault(name)
    return site.altered(FAULTS[name].make(ground or Ground(site, load)))


# --- memory --------------------------------------------------------------------------------


def _changes(config: EngineConfig, base: EngineConfig) -> dict[str, Any]:
    before = base.to_dict()
    return {key: value for key, value in config.to_dict().items() if value != before[key]}


def _pool_of(ground: Ground, pages: int, **changes: Any) -> dict[str, Any]:
    """Settings with a pool of so many pages."""
    batch = min(changes.pop("max_batch", ground.site.config.max_batch), pages)
    config = ground.settings(max_batch=batch, **changes)
    memory = ground.memory(pages, config)
    return _changes(config.with_(kv_memory=memory), ground.site.config)


def _starve_pool(ground: Ground) -> Alteration:
    """Room for two requests where the load brings more."""
    pages = 2 * ground.pages(ground.longest) + 1
    settings = _pool_of(ground, pages, reserve="final", prefix_cache=False)
    return Alteration(settings=settings, load={"shared_prefix": 0})


def _fragment(ground: Ground) -> Alteration:
    """One run of pages a request, as long as the longest context: the way before paging."""
    longest = min(4 * ground.longest, ground.site.loaded.spec.max_positions)
    pages = 2 * ground.pages(longest)
    changes = {"allocator": "contiguous", "reserve": "max", "max_model_len": longest}
    return Alteration(settings=_pool_of(ground, pages, **changes), load={"shared_prefix": 0})


def _thrash(ground: Ground) -> Alteration:
    """Long outputs in a pool for some of them, and no protection from being thrown out again."""
    output = 5 * ground.site.config.page_tokens
    lengths = f"lognormal:{output // 3},{output},0.1"
    load: dict[str, Any] = {
        "arrivals": "closed:8",
        "lengths": lengths,
        "requests": 20,
        "shared_prefix": 0,
    }
    sized = Ground(ground.site, replace(ground.load, **load))
    pages = max(int(0.35 * 8 * sized.pages(sized.longest)), sized.pages(sized.longest) + 8)
    settings = _pool_of(ground, pages, max_batch=8, reserve="known", prefix_cache=False)
    return Alteration(settings=settings, load=load, touch=fault_patches.no_protection)


def _leak_pages(ground: Ground) -> Alteration:
    return Alteration(touch=fault_patches.leak_on_cancel)


def _leak_records(ground: Ground) -> Alteration:
    return Alteration(touch=fault_patches.keep_ended_requests)


# --- the batch and the machine ---------------------------------------------------------------


def _cap(ground: Ground, cap: int) -> dict[str, Any]:
    config = ground.settings(max_batch=cap)
    return _changes(config, ground.site.config)


def _low_cap(ground: Ground) -> Alteration:
    return Alteration(settings=_cap(ground, 2), load={"arrivals": "closed:8", "requests": MANY})


def _small_budget(ground: Ground) -> Alteration:
    config = ground.settings(max_batch=4, token_budget=4)
    settings = _changes(config, ground.site.config)
    return Alteration(settings=settings, load={"arrivals": "closed:4", "requests": 12})


def _slow_machine(ground: Ground) -> Alteration:
    """A machine whose knee lies a little below the cap, and more load than that."""
    machine = ground.slower(5.4)
    return Alteration(
        settings=_cap(ground, 8),
        load={**ground.decodes, "arrivals": f"closed:{MANY}", "requests": 2 * MANY},
        touch=fault_patches.slow_rows(machine.fixed_ms, machine.per_row_ms),
    )


def _wrong_drafts(ground: Ground) -> Alteration:
    """A drafter that is sure and wrong, on a machine whose rows are cheap enough to try."""
    machine = ground.slower(CHEAP_ROWS)
    return Alteration(
        settings={"speculate": "prompt"},
        load={**ground.decodes, "arrivals": "closed:4", "requests": MANY},
        touch=fault_patches.both(
            fault_patches.slow_rows(machine.fixed_ms, machine.per_row_ms),
            fault_patches.wrong_drafts,
        ),
    )


def _spent_quota(ground: Ground) -> Alteration:
    quota = host_faults.SpentQuota()
    return Alteration(look=quota.look, touch=quota.touch)


def _busy_neighbours(ground: Ground) -> Alteration:
    return Alteration(look=host_faults.here, touch=host_faults.busy_neighbours)


def _one_thread(ground: Ground) -> Alteration:
    return Alteration(
        settings={"threads": 1},
        look=host_faults.two_idle_cores,
        touch=host_faults.threads_restored,
    )


def _short_memory(ground: Ground) -> Alteration:
    return Alteration(look=host_faults.ShortMemory().look)


def _stepping_clock(ground: Ground) -> Alteration:
    return Alteration(look=host_faults.SteppingClock().look)


def _cap_past_knee(ground: Ground) -> Alteration:
    """A batch of four knees; where the machine's own is far away a slower machine has one."""
    cap = PAST_KNEE * 4
    machine = ground.slower(cap / PAST_KNEE)
    return Alteration(
        settings=_cap(ground, cap),
        load={**ground.decodes, "arrivals": f"closed:{cap}", "requests": 2 * cap},
        touch=fault_patches.slow_rows(machine.fixed_ms, machine.per_row_ms),
    )


def _promise(ground: Ground) -> Alteration:
    """Twice a lone request's time a token is promised, and eight at once take longer."""
    machine = ground.slower(4.0)
    return Alteration(
        settings=_cap(ground, 8) | {"tpot_objective_ms": 2 * machine.ms(1)},
        load={**ground.decodes, "arrivals": "closed:8", "requests": 2 * MANY},
        touch=fault_patches.slow_rows(machine.fixed_ms, machine.per_row_ms),
    )


# --- around the steps --------------------------------------------------------------------------


def _slow_tokenizer(ground: Ground) -> Alteration:
    return Alteration(touch=fault_patches.slow_tokenizer(2 * ground.solo_ms))


def _verbose_log(ground: Ground) -> Alteration:
    return Alteration(touch=fault_patches.verbose_log(ground.curve.ms(6) / 6))


def _drop_prefixes(ground: Ground) -> Alteration:
    return Alteration(touch=fault_patches.no_prefix_hits)


def _slow_generator(ground: Ground) -> Alteration:
    target = fault_patches.slow_target(max(40.0, 1.5 * ground.solo_ms))
    return Alteration(load={"requests": MANY}, target=target)


def _idle(ground: Ground) -> Alteration:
    think_s = max(6 * ground.solo_ms, 80.0) / 1e3
    return Alteration(load={"arrivals": f"closed:1,{think_s:.4f}", "requests": 6})


# --- what the model says -------------------------------------------------------------------------


def _probe_text(site: Site) -> Text:
    loaded = site.loaded
    length = min(256, loaded.spec.max_positions - 2)
    return Text("fault", "fault", long_text(loaded.tokenizer, length, 5))


def _outliers(ground: Ground) -> Alteration:
    """Weights with outlier channels, and one scale for all channels of a token."""
    site, text = ground.site, _probe_text(ground.site)
    plain = plain_arm(site.config, site.loaded, len(text.tokens))
    pairs, factor = choose_pairs(ranges_of(plain, [text]))
    loaded = injected_model(site.config, site.loaded, pairs, factor)
    settings = {"kv_format": "int8_token", "outlier_channels": 0, "zero_point": False}
    return Alteration(settings=settings, loaded=loaded)


def _static_scales(ground: Ground) -> Alteration:
    """Static scales as of a calibration on much smaller values."""
    site, text = ground.site, _probe_text(ground.site)
    plain = plain_arm(site.config, site.loaded, len(text.tokens))
    spec, identity = site.loaded.spec, site.loaded.identity
    right = ranges_of(plain, [text]).calibration(spec.name, identity, 0)
    wrong = replace(right, k_max=right.k_max / SHRINK, v_max=right.v_max / SHRINK)
    return Alteration(settings={"kv_format": "int8_static", "zero_point": False}, calibration=wrong)


def _mix_rows(ground: Ground) -> Alteration:
    return Alteration(touch=fault_patches.swap_rows)


def _mixed_versions(ground: Ground) -> Alteration:
    return Alteration(versions={"torch": "2.8.0", "triton": "2.1.0"})


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("leak_pages", "leak", "a page is lost with each cancelled request", _leak_pages),
        Fault("leak_records", "leak", "ended requests are kept", _leak_records),
        Fault("starve_pool", "kv_bound", "a KV pool for two requests", _starve_pool),
        Fault("fragment", "fragmentation", "whole contexts reserved in one run", _fragment),
        Fault("thrash", "preemption_thrash", "preemption without protection", _thrash),
        Fault("low_cap", "cap_bound", "two rows at most", _low_cap),
        Fault("small_budget", "token_budget_bound", "four tokens a step", _small_budget),
        Fault("slow_machine", "compute_bound", "rows that cost too much", _slow_machine),
        Fault("wrong_drafts", "speculation_hurts", "drafts that are never right", _wrong_drafts),
        Fault("spent_quota", "throttled", "a CPU quota of half a core", _spent_quota),
        Fault("busy_neighbours", "host_contended", "a busy process on every core",
              _busy_neighbours),
        Fault("one_thread", "fewer_threads_than_cores", "one thread on two cores", _one_thread),
        Fault("short_memory", "memory_pressure", "memory that tasks wait for", _short_memory),
        Fault("stepping_clock", "clock_jumped", "a clock that is set while it is read",
              _stepping_clock),
        Fault("cap_past_knee", "over_saturated", "a cap of four knees", _cap_past_knee),
        Fault("promise", "batch_too_large_for_objective", "a time per token that a batch "
              "of eight cannot keep", _promise),
        Fault("slow_tokenizer", "tokenizer_bound", "a tokenizer as slow as the model",
              _slow_tokenizer),
        Fault("verbose_log", "logging_overhead", "a line for every layer of every token",
              _verbose_log),
        Fault("drop_prefixes", "cold_prefix_cache", "nothing is found in the prefix cache",
              _drop_prefixes),
        Fault("slow_generator", "generator_bound", "a load client that blocks", _slow_generator),
        Fault("idle", "underloaded", "one user who thinks for long", _idle),
        Fault("outliers", "outlier_channel_quantised", "outlier channels under one scale",
              _outliers),
        Fault("static_scales", "static_scale_clips", "static scales 8 × too small",
              _static_scales),
        Fault("mix_rows", "cross_talk", "two rows swap their tokens", _mix_rows),
        Fault("mixed_versions", "version_mismatch", "triton that is not this torch's",
              _mixed_versions),
    )
}  # fmt: skip
