"""GPU, compiler, processor, memory and limits."""

from __future__ import annotations

from collections.abc import Iterator

from engine.observing.cgroup import CpuQuota
from playbooks.environment.check import FAIL, PASS, SKIP, WARN, Check
from playbooks.environment.facts import EnvironmentFacts
from playbooks.environment.table import CompatibilityTable

GIB = 1 << 30
LEAST_MEMORY = GIB
"""Available: the embedded model, its pool and room to breathe."""
LEAST_DISK = GIB
LEAST_FILES = 1024
SWAP_MUCH = GIB
HOT_C = 85.0
THROTTLED = 0.1
"""Of the periods."""
SLOW_CLOCK = 0.6
"""Of the highest clock."""


def judge_gpus(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    if not facts.gpus:
        yield Check("gpu", SKIP, "none", "no GPU: the CPU kernels run")
    for number, gpu in enumerate(facts.gpus):
        name, problems = f"{gpu.name or 'GPU'} ({number})", list(gpu.throttle)
        if gpu.temperature_c is not None and gpu.temperature_c >= HOT_C:
            problems.append(f"{gpu.temperature_c:.0f} °C")
        clocks = f"{gpu.clock_mhz or '–'} of {gpu.clock_max_mhz or '–'} MHz"
        if problems:
            yield Check(
                "gpu",
                WARN,
                name,
                f"slowed down: {', '.join(problems)}; {clocks}",
                "look at cooling, the power limit and who else uses it",
            )
        else:
            total = f"{gpu.memory_total / GIB:.0f} GiB, " if gpu.memory_total else ""
            yield Check("gpu", PASS, name, f"{total}{clocks}, not throttled")


def judge_compiler(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    if facts.compiler is None:
        yield Check(
            "compiler",
            WARN,
            "–",
            facts.compiler_error or "no C compiler",
            "install gcc or clang: without it the slow reference kernels run",
        )
    else:
        yield Check("compiler", PASS, facts.compiler, "builds the CPU kernels")


def judge_cpu(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    cpu = facts.cpu
    name = f"{cpu.model or 'CPU'}, {cpu.cores or '?'} cores"
    is_x86 = facts.machine.lower() in ("x86_64", "amd64")
    if not cpu.flags:
        yield Check("cpu", WARN, name, "its features are not known")
    elif is_x86 and not {"avx2", "fma"} <= set(cpu.flags):
        yield Check(
            "cpu",
            WARN,
            name,
            f"no AVX2 with FMA ({', '.join(cpu.flags)})",
            "use a newer CPU, or a virtual machine that shows the host's features",
        )
    else:
        yield Check("cpu", PASS, name, ", ".join(cpu.flags))
    yield _quota(cpu.quota)
    if cpu.mhz is None or cpu.mhz_max is None:
        yield Check(
            "cpu_clock",
            SKIP,
            f"{cpu.mhz:.0f} MHz" if cpu.mhz else "–",
            "its highest clock is not known here",
        )
    elif cpu.mhz < SLOW_CLOCK * cpu.mhz_max and cpu.governor == "powersave":
        yield Check(
            "cpu_clock",
            WARN,
            f"{cpu.mhz:.0f} of {cpu.mhz_max:.0f} MHz",
            "the governor is powersave",
            "cpupower frequency-set -g performance",
        )
    else:
        yield Check(
            "cpu_clock",
            PASS,
            f"{cpu.mhz:.0f} of {cpu.mhz_max:.0f} MHz",
            f"governor {cpu.governor or 'unknown'}",
        )


def _quota(quota: CpuQuota | None) -> Check:
    if quota is None:
        return Check("cpu_quota", SKIP, "none", "no container holds the CPU time back")
    name, stood = f"{quota.cores:g} cores", (quota.throttled or 0) / max(quota.periods or 0, 1)
    counted = f"stood still in {quota.throttled} of {quota.periods} periods so far"
    seen = counted if quota.periods else "by the container's quota"
    if quota.cores >= 1 and stood < THROTTLED:
        return Check("cpu_quota", PASS, name, seen)
    remedy = "raise the container's CPU limit; a step that meets it waits for the next period"
    return Check("cpu_quota", WARN, name, seen, remedy)


def judge_memory(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    memory = facts.memory
    room = [size for size in (memory.available, memory.limit) if size is not None]
    if not room:
        yield Check("memory", WARN, "–", "the free memory cannot be read")
    elif min(room) < LEAST_MEMORY:
        yield Check(
            "memory",
            FAIL,
            _gib(min(room)),
            f"less than {_gib(LEAST_MEMORY)} to be had",
            "end something, or raise the container's limit",
        )
    elif (memory.swap_used or 0) > SWAP_MUCH:
        yield Check(
            "memory",
            WARN,
            _gib(min(room)),
            f"{_gib(memory.swap_used or 0)} are swapped out",
            "a cache that is swapped out is slower than none: find who took the memory",
        )
    else:
        limit = f", container limit {_gib(memory.limit)}" if memory.limit is not None else ""
        whole = f"of {_gib(memory.total)}{limit}" if memory.total else "available"
        yield Check("memory", PASS, _gib(min(room)), whole)


def judge_limits(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    free, files = facts.memory.disk_free, facts.memory.open_files
    if free is None:
        yield Check("disk", WARN, "–", "the free disk space cannot be read")
    else:
        low = free < LEAST_DISK
        yield Check(
            "disk",
            WARN if low else PASS,
            _gib(free),
            "free for recordings and the log",
            "make room" if low else "",
        )
    if files is None:
        yield Check("open_files", SKIP, "–", "no such limit here")
    else:
        low = files < LEAST_FILES
        yield Check(
            "open_files",
            WARN if low else PASS,
            str(files),
            "connections that can be open",
            "ulimit -n 65536" if low else "",
        )


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
