"""Causes of the host: what the machine did to the engine. They make its numbers doubtful."""

from __future__ import annotations

from playbooks.diagnosis.evidence import Evidence
from playbooks.diagnosis.findings import RESTART, Finding, confidence

THROTTLED = 0.10
"""Of the periods of a CPU quota; more are no chance."""
CONTENDED = 0.25
"""Of the CPU time that the engine asked for, lost to others or to the hypervisor."""
WANTED = 0.25
"""Cores that the process must have asked for, on average: who asks for little loses little."""
IDLE = 0.25
"""Of its cores: where so many stand idle nobody takes them away."""
MISSING_IDLE = 0.4
"""Of the cores without a thread, those that must have stood idle: else others have them."""
MEMORY_PRESSURE = 0.05
"""Of the time, some task waited for memory."""
FAULTS_PER_S = 50.0
SCARCE = 0.03
"""Of the memory, still to be had."""
JUMP_S = 0.5


def throttled(e: Evidence) -> Finding | None:
    assert e.host is not None
    share = e.host.throttled_share
    if share is None or share < THROTTLED:
        return None
    quota = "" if e.host.cpu_quota is None else f" of {e.host.cpu_quota:g} cores"
    return Finding(
        "throttled",
        confidence(share, THROTTLED, 0.5),
        (f"the CPU quota{quota} was spent in {share:.0%} of its periods (limit {THROTTLED:.0%}): "
         "everything stood still until the next",),
        "raise the container's CPU limit, or use fewer threads and a smaller batch; every latency "
        "here is the quota's",
        RESTART,
        "the same load without a quota is as slow",
    )  # fmt: skip


def host_contended(e: Evidence) -> Finding | None:
    """Others on its cores, or on the hypervisor's."""
    assert e.host is not None
    host = e.host
    if host.cpu_s is not None and host.cpu_s + (host.wait_s or 0.0) < WANTED * host.seconds:
        return None
    others = host.others_share or 0.0
    if host.cores and host.idle_cores is not None and host.idle_cores >= IDLE * host.cores:
        others = 0.0  # it waited for a moment here and there, and not for want of cores
    steal = host.steal_share or 0.0
    lost = 1 - (1 - others) * (1 - steal)
    if lost < CONTENDED:
        return None
    texts = []
    if others >= 0.01:
        names = "; ".join(
            f"process {b.pid}, {b.name!r}, had {b.cores:.1f} cores"
            for b in host.busiest if b.cores >= 0.05
        )  # fmt: skip
        texts.append(
            f"{others:.0%} of the CPU time that the engine asked for went to others (limit "
            f"{CONTENDED:.0%} with steal); {names or 'processes that cannot be seen from here'}"
        )
    if steal >= 0.01:
        texts.append(f"the hypervisor gave {steal:.0%} of this machine's CPU time to others")
    return Finding(
        "host_contended",
        confidence(lost, CONTENDED, 0.5),
        tuple(texts),
        ("end the processes that are named, or give the engine cores of its own (taskset, a CPU "
         "set); then measure again" if others >= steal else
         "ask for a machine with cores of its own (dedicated, not shared); then measure again"),
        None,
        "the same load on a quiet machine is as slow",
    )  # fmt: skip


def fewer_threads_than_cores(e: Evidence) -> Finding | None:
    assert e.host is not None
    host = e.host
    threads, cores = host.compute_threads, host.cores
    if threads is None or cores is None:
        return None
    missing = cores - threads
    if missing < 1 or (host.idle_cores is not None and host.idle_cores < MISSING_IDLE * missing):
        return None
    idle = "" if host.idle_cores is None else f", and {host.idle_cores:.1f} cores stood idle"
    return Finding(
        "fewer_threads_than_cores",
        confidence(missing / cores, 0.0, 0.5),
        (f"the engine computes with {threads} thread{'s' * (threads != 1)} and may use "
         f"{cores} cores{idle}",),
        "set threads to the number of cores, or unset it, and OMP_NUM_THREADS",
        RESTART,
        f"the engine is no faster with {cores} threads",
    )  # fmt: skip


def memory_pressure(e: Evidence) -> Finding | None:
    assert e.host is not None
    host = e.host
    waited, faults = host.memory_pressure or 0.0, host.major_faults_per_s or 0.0
    free, swapped = host.available_share, host.swapped_bytes or 0
    scarce = free is not None and free < SCARCE
    swaps = swapped > 0 and faults >= FAULTS_PER_S
    if not (waited >= MEMORY_PRESSURE or swaps or scarce):
        return None
    texts = []
    if waited >= 0.005:
        texts.append(f"tasks waited for memory in {waited:.0%} of the time (limit "
                     f"{MEMORY_PRESSURE:.0%})")  # fmt: skip
    if swaps:
        texts.append(f"{swapped / 2**20:,.0f} MiB were swapped, {faults:.0f} major faults a second")
    if scarce:
        texts.append(f"{free:.1%} of the memory was left")
    return Finding(
        "memory_pressure",
        confidence(waited, MEMORY_PRESSURE, 0.3) if waited >= MEMORY_PRESSURE else 0.7,
        tuple(texts),
        "give less kv_memory, end what else needs memory, or take a machine with more of it; no "
        "swap under an engine",
        RESTART,
        "the same load with half of the kv_memory waits for memory as much",
    )  # fmt: skip


def clock_jumped(e: Evidence) -> Finding | None:
    assert e.host is not None
    jump = e.host.clock_jump_s
    if jump is None or jump < JUMP_S:
        return None
    return Finding(
        "clock_jumped",
        confidence(jump, JUMP_S, 10 * JUMP_S),
        (f"the wall clock stepped {jump:.1f} s against the monotonic one within "
         f"{e.host.seconds:.0f} s",),
        "let the clock be slewed and not stepped (chrony, ntpd); times of logs and of other "
        "machines do not match those of this run",
        None,
        "the same run on a machine whose clock is in step shows the same times",
    )  # fmt: skip
