"""From an EngineConfig to its scheduler, policy and pool."""

from __future__ import annotations

from engine.config import EngineConfig
from engine.scheduling.continuous import Continuous
from engine.scheduling.lookup import PromptLookup
from engine.scheduling.pages import ContiguousPool, PagePool
from engine.scheduling.plan import Drafter
from engine.scheduling.prefix import PrefixIndex
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.speculation import Speculation
from engine.scheduling.static import Static


def make_scheduler(config: EngineConfig, pages: int, slabs: int, max_model_len: int) -> Scheduler:
    """The scheduler and pool that the settings ask for.

    The prefix cache needs pages that can be shared, so the baselines have none.
    """
    paged = (config.policy, config.allocator) == ("continuous", "paged")
    pool: PagePool
    if config.allocator == "contiguous":
        pool = ContiguousPool(pages, config.page_tokens, slabs)
    else:
        index = PrefixIndex() if paged and config.prefix_cache else None
        pool = PagePool(pages, config.page_tokens, slabs, index)
    policy: Static | Continuous = Continuous()
    if config.policy == "static":
        policy = Static(int(config.max_wait_ms * 1e6), config.pad_prompts)
    reserve = config.reserve or ("known" if paged else "final")
    cap = config.min_batch if config.dynamic_batch else config.max_batch
    return Scheduler(pool, policy, cap, config.token_budget, max_model_len, reserve)


def make_speculation(config: EngineConfig, model: Drafter | None) -> Speculation | None:
    """`model`: a second one that drafts, where the settings name one."""
    if config.speculate == "off":
        return None
    drafter = PromptLookup() if model is None else model
    return Speculation(drafter, config.max_draft, config.page_tokens)
