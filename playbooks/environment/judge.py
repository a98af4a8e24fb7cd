"""From facts to verdicts: what is known to break fails, what nobody has written down warns.

Every judge is a pure function of EnvironmentFacts and the compatibility table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from playbooks.environment import cuda, machine, packages
from playbooks.environment.check import Check
from playbooks.environment.facts import EnvironmentFacts
from playbooks.environment.table import CompatibilityTable

JUDGES: tuple[Callable[[EnvironmentFacts, CompatibilityTable], Iterator[Check]], ...] = (
    packages.judge_python,
    packages.judge_libc,
    packages.judge_torch,
    packages.judge_triton,
    packages.judge_breaks,
    cuda.judge_driver,
    cuda.judge_gpu_code,
    cuda.judge_cuda_builds,
    cuda.judge_copies,
    machine.judge_gpus,
    machine.judge_compiler,
    machine.judge_cpu,
    machine.judge_memory,
    machine.judge_limits,
)


def judge(facts: EnvironmentFacts, table: CompatibilityTable) -> list[Check]:
    return [check for each in JUDGES for check in each(facts, table)]
