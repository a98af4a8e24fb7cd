"""Causes that keep requests out or slow them down: memory, the batch's size, the machine."""

from __future__ import annotations

from playbooks.diagnosis.evidence import Evidence
from playbooks.diagnosis.findings import LIVE, RESTART, Finding, confidence
from playbooks.statistics.knee import DOUBLING_GAIN

LIMITED = 0.25
"""Of the steps: what keeps requests out more often than this is a limit."""
WASTE = 0.5
"""Of the token places held: more without a token is fragmentation."""
TAX = 0.25
"""Recomputed over useful tokens: more than this is thrash."""
FAR_PAST = 2.0
"""A batch of so many knees is over-saturated, not merely full."""
MOST_OF_IT = 0.5
ONE_ROW = 1.2
"""Rows on average: no two run together."""
DRAFTS_PAY = 0.98
"""Tokens a second with drafts over without: below it they cost more than they bring."""
REJECTED, MANY_ROWS = 0.3, 8.0
"""Where nobody says what drafts cost: so few of them right, beside so many rows of others."""
KV_FULL = 0.9
"""Of the pages: with more held it may be memory that keeps requests out."""


def _shut(e: Evidence) -> bool:
    """Did anything but the KV cache and the load keep requests out?"""
    return max(e.batch_limited_share or 0.0, e.token_limited_share or 0.0) >= LIMITED


def fragmentation(e: Evidence) -> Finding | None:
    assert e.kv_limited_share is not None and e.kv_waste is not None
    if e.kv_limited_share < LIMITED or e.kv_waste < WASTE:
        return None
    return Finding(
        "fragmentation",
        confidence(e.kv_waste, WASTE, 0.75),
        (f"no room in the KV cache in {e.kv_limited_share:.0%} of the steps, and {e.kv_waste:.0%} "
         "of the token places that are held hold no token",),
        "let requests grow page by page: allocator paged, reserve known; smaller pages where "
        "requests are short",
        RESTART,
        "the places fill up before the requests end",
    )  # fmt: skip


def preemption_thrash(e: Evidence) -> Finding | None:
    assert e.preemption_tax is not None
    if e.preemption_tax < TAX:
        return None
    return Finding(
        "preemption_thrash",
        confidence(e.preemption_tax, TAX, 2 * TAX),
        (f"{e.preemption_tax:.0%} as many tokens were computed again as were useful (limit "
         f"{TAX:.0%})",),
        "lower the cap until nobody is preempted (live); reserve predicted, more kv_memory or an "
        "INT8 KV format (restart)",
        LIVE,
        "a lower cap recomputes as much",
    )  # fmt: skip


def kv_bound(e: Evidence) -> Finding | None:
    assert e.kv_limited_share is not None and e.kv_usage is not None
    if e.kv_limited_share < LIMITED:
        return None
    return Finding(
        "kv_bound",
        confidence(e.kv_limited_share, LIMITED, 0.6),
        (f"no room in the KV cache in {e.kv_limited_share:.0%} of the steps, {e.kv_usage:.0%} of "
         "the pages held",),
        "give kv_memory, or an INT8 KV format (half the bytes); shorter contexts or fewer "
        "requests until then",
        RESTART,
        "twice the KV memory admits no more requests",
    )  # fmt: skip


def token_budget_bound(e: Evidence) -> Finding | None:
    assert e.token_limited_share is not None and e.token_gain is not None
    firm = max(e.batch_limited_share or 0.0, e.kv_limited_share or 0.0)
    full = e.token_limited_share
    if full < LIMITED or firm >= full or e.token_gain < DOUBLING_GAIN:
        return None
    size = "" if e.token_budget is None else f" of {e.token_budget} tokens"
    return Finding(
        "token_budget_bound",
        confidence(full, LIMITED, 0.6),
        (f"{full:.0%} of the steps{size} were full while work was left; twice as many "
         f"tokens a step would give {e.token_gain:.0%} more tokens a second",),
        "raise token_budget",
        RESTART,
        "twice the token budget is no faster",
    )  # fmt: skip


def speculation_hurts(e: Evidence) -> Finding | None:
    """By its gain where that is known; else where most drafts are wrong and rows are not free."""
    assert e.draft_accepted_ratio is not None
    right = f"{e.draft_accepted_ratio:.0%} of the draft tokens were right"
    if e.draft_gain is not None:
        if e.draft_gain >= DRAFTS_PAY:
            return None
        sure = confidence(e.draft_gain, DRAFTS_PAY, 0.85)
        seen = f"with drafts {e.draft_gain:.2f} × the tokens a second; {right}"
    else:
        if e.draft_accepted_ratio >= REJECTED or (e.mean_running or 0.0) < MANY_ROWS:
            return None
        sure = confidence(e.draft_accepted_ratio, REJECTED, 0.1)
        seen = f"{right}, and {e.mean_running:.0f} requests run, whose rows they slow down"
    return Finding(
        "speculation_hurts",
        sure,
        (seen,),
        "switch speculation off for this traffic, or draft fewer tokens",
        RESTART,
        "without drafts it is no faster",
    )


def batch_too_large(e: Evidence) -> Finding | None:
    assert e.tpot_ms is not None and e.curve is not None and e.queue_share is not None
    goal = e.tpot_objective_ms
    if goal is None or e.tpot_ms <= goal or e.curve.ms(1) > goal:
        return None
    waits = e.queue_share >= MOST_OF_IT
    return Finding(
        "batch_too_large_for_objective",
        confidence(e.tpot_ms / goal, 1.0, 1.5),
        (f"a token takes {e.tpot_ms:.0f} ms where {goal:.0f} ms were promised; alone it takes "
         f"{e.curve.ms(1):.0f} ms",
         f"waiting is {e.queue_share:.0%} of request time: "
         + ("most of the latency, so a smaller batch alone would make it longer" if waits
            else "not most of the latency, so a smaller batch shortens it")),
        ("send less here or add a machine, then lower the cap" if waits else
         "lower the cap, or let it move with tpot_objective_ms"),
        LIVE,
        "a smaller batch has the same time per token",
    )  # fmt: skip


def over_saturated(e: Evidence) -> Finding | None:
    assert e.mean_running is not None and e.curve is not None
    knee = e.curve.knee
    if e.mean_running < FAR_PAST * knee:
        return None
    slower = e.curve.ms(e.mean_running) / e.curve.ms(knee)
    return Finding(
        "over_saturated",
        confidence(e.mean_running / knee, FAR_PAST, 2 * FAR_PAST),
        (f"{e.mean_running:.0f} rows run and the knee is at {knee}: a step takes {slower:.1f} × "
         "as long as there, for little more throughput",),
        f"lower the cap to {max(1, round(0.75 * knee))}, three quarters of the knee",
        LIVE,
        "a sweep finds the knee at a larger batch",
    )  # fmt: skip


def cap_bound(e: Evidence) -> Finding | None:
    assert e.batch_limited_share is not None and e.mean_running is not None
    gain = e.doubling_gain
    if e.batch_limited_share < LIMITED or gain is None or gain < DOUBLING_GAIN:
        return None
    return Finding(
        "cap_bound",
        confidence(e.batch_limited_share, LIMITED, 0.6),
        (f"the batch was full at {e.mean_running:.0f} rows in {e.batch_limited_share:.0%} of the "
         f"steps; twice as many rows would give {gain:.0%} more tokens a second",),
        "raise the cap (live, up to max_batch; beyond that with a restart)",
        LIVE,
        "a larger cap gives no more throughput",
    )  # fmt: skip


def one_row(e: Evidence) -> Finding | None:
    """A cap of one, without step times: decoding one row reads all weights for one token."""
    assert e.mean_running is not None and e.waiting_share is not None
    other = max(e.kv_limited_share or 0.0, e.token_limited_share or 0.0)
    if not 0 < e.mean_running < ONE_ROW or e.waiting_share < MOST_OF_IT or other >= LIMITED:
        return None
    if (e.kv_usage or 0.0) >= KV_FULL:
        return None
    cores = e.host.idle_cores if e.host is not None else None
    idle = "" if cores is None else f"; {cores:.1f} cores are idle"
    return Finding(
        "cap_bound",
        confidence(e.waiting_share, MOST_OF_IT, 0.9),
        (f"one request runs ({e.mean_running:.1f} on average) and others wait behind it in "
         f"{e.waiting_share:.0%} of the time, with room for them{idle}",),
        "raise the cap (live, up to max_batch; beyond that with a restart)",
        LIVE,
        "a larger cap gives no more throughput",
    )  # fmt: skip


def compute_bound(e: Evidence) -> Finding | None:
    assert e.mean_running is not None and e.curve is not None
    gain = e.doubling_gain
    if not _shut(e) or gain is None or e.mean_running >= FAR_PAST * e.curve.knee:
        return None
    full = (e.token_limited_share or 0.0) >= LIMITED and (e.token_gain or 0.0) < DOUBLING_GAIN
    if gain >= DOUBLING_GAIN and not (full and e.token_gain is not None):
        return None
    return Finding(
        "compute_bound",
        confidence(max(e.batch_limited_share or 0.0, e.token_limited_share or 0.0), LIMITED, 0.6),
        (f"requests wait while {e.mean_running:.0f} rows run, and twice as many would give "
         f"{max(gain, 0):.0%} more tokens a second",),
        "send less here, or add a machine: settings move this little",
        LIVE,
        "a larger cap gives more throughput",
    )  # fmt: skip
