"""The load that a fit is made from: closed loops, from one user to a full batch, with short
prompts; and a few users with long ones, so that what a context costs is seen too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.errors import EngineError
from playbooks.load.arrivals import Closed
from playbooks.load.client import LoadResult, run_load
from playbooks.load.mix import parse_mix
from playbooks.load.targets import Target
from playbooks.load.workload import LoadSpec
from playbooks.steps.models import FitWork

SHORT, LONG, LONGEST = "lognormal:40,32", "lognormal:400,32", "lognormal:1200,24"
FEW = (2, 4)
"""Users of the long prompts."""


@dataclass(frozen=True)
class Rung:
    number: int
    """Counted through all rounds."""
    round: int
    users: int
    lengths: str
    seconds: float
    seed: int

    @property
    def spec(self) -> LoadSpec:
        return LoadSpec(
            Closed(self.users), parse_mix(self.lengths), duration_s=self.seconds, seed=self.seed,
            ignore_eos=True,
        )  # fmt: skip

    def run(self, target: Target) -> LoadResult:
        """Raises EngineError when a request fails: such a load measures nothing."""
        result = run_load(target, self.spec)
        if result.interrupted:
            raise KeyboardInterrupt
        failed = next((r for r in result.records if r.failed), None)
        if failed is not None:
            raise EngineError(f"a request of the fit failed: {failed.detail or failed.error}")
        return result


def rungs(work: FitWork, max_batch: int) -> list[Rung]:
    """All rounds, one after the other."""
    sizes = [1]
    while 2 * sizes[-1] < max_batch:
        sizes.append(2 * sizes[-1])
    loads = [(users, SHORT) for users in dict.fromkeys([*sizes, max_batch])]
    loads += [(min(n, max_batch), text) for n, text in zip(FEW, (LONGEST, LONG), strict=True)]
    each_s = work.duration_s / (work.rounds * len(loads))
    return [
        Rung(turn * len(loads) + i, turn, users, lengths, each_s, work.seed + turn * len(loads) + i)
        for turn in range(work.rounds)
        for i, (users, lengths) in enumerate(loads)
    ]


def climb(ladder: list[Rung], progress: Callable[[int, int], None]) -> Iterator[Rung]:
    """The rungs in turn; `progress` hears of each that is done."""
    for done, rung in enumerate(ladder, 1):
        yield rung
        progress(done, len(ladder))
