"""What the witness says of a span of time. Shares are 0–1; None: the host does not tell."""

from __future__ import annotations

from dataclasses import dataclass

DISTURBED = 0.05
"""A measurement that lost more of its machine than this is not to be believed as it stands."""


@dataclass(frozen=True)
class Busy:
    """Another process, and how much it took."""

    name: str
    pid: int
    cores: float
    """CPU seconds a second; 1 is a whole core."""


@dataclass(frozen=True)
class HostEvidence:
    """Of one process (another one's children included) and of the cores that it may use."""

    seconds: float
    cores: int | None = None
    """That it may use: its cpuset, and no more than its quota; two threads of one are one."""
    compute_threads: int | None = None
    """With which the engine computes; None: not on the CPU, or not known."""
    threads: int | None = None
    """All that it had at the end."""
    cpu_s: float | None = None
    """CPU time that it had."""
    wait_s: float | None = None
    """Its threads' time in the run queue: ready to run, and not running."""
    others_s: float | None = None
    """CPU time that others had on its cores; who sends the load, this process, is not counted."""
    idle_cores: float | None = None
    """Of its cores, those that nobody used; mean."""
    steal_share: float | None = None
    """Of the CPU time that this machine asked for, what the hypervisor gave to others."""
    throttled_share: float | None = None
    """Of the periods of its CPU quota, those in which it stood still; 0: no quota."""
    stood_s: float | None = None
    """So long the quota held it, every core's time counted."""
    cpu_quota: float | None = None
    """Cores; None: no quota."""
    cpu_pressure: float | None = None
    """Of the time, that in which some task of the machine waited for a core (PSI some)."""
    memory_pressure: float | None = None
    io_pressure: float | None = None
    involuntary_per_s: float | None = None
    """Switches away from a thread that would have gone on."""
    major_faults_per_s: float | None = None
    """Pages that had to come from a disk."""
    swapped_bytes: int | None = None
    """In and out, of the whole machine."""
    available_share: float | None = None
    """Of the memory, what was to be had at the end."""
    disk_free_bytes: int | None = None
    """Where the optimization log lives."""
    clock_jump_s: float | None = None
    """The wall clock's steps against the monotonic one, added up whatever their sign."""
    busiest: tuple[Busy, ...] = ()
    """The others that took most, the first the most."""

    @property
    def others_share(self) -> float | None:
        """Of the CPU time that its threads asked for, what others had meanwhile.

        A thread waits for its siblings too: what others never had was not lost to them.
        """
        if self.cpu_s is None or self.wait_s is None or self.others_s is None:
            return None
        lost = min(self.wait_s, self.others_s)
        return lost / (self.cpu_s + lost) if lost > 0 else 0.0

    @property
    def quota_share(self) -> float | None:
        """Of the CPU time that it asked for, what the quota kept; by periods where the kernel
        does not count the time."""
        if not self.throttled_share or self.stood_s is None or not self.cpu_s:
            return self.throttled_share
        return self.stood_s / (self.cpu_s + self.stood_s)

    @property
    def lost(self) -> float | None:
        """Of what it asked for, the part that it did not get; None where nothing is told."""
        shares = (self.others_share, self.steal_share, self.quota_share)
        told = [share for share in shares if share is not None]
        if not told:
            return None
        left = 1.0
        for share in told:
            left *= 1 - min(share, 1.0)
        return 1 - left

    @property
    def disturbed(self) -> bool:
        """A host that tells nothing disturbs nobody, as far as anybody knows."""
        return (self.lost or 0.0) > DISTURBED

    def why(self) -> str:
        """The shares that were lost, in words."""
        parts = (
            (self.others_share, "others"),
            (self.steal_share, "steal"),
            (self.quota_share, "the CPU quota"),
        )
        named = [f"{share:.0%} to {who}" for share, who in parts if share and share >= 0.005]
        lost = ", ".join(named) or "nothing"
        if (self.others_share or 0) < 0.005:
            return lost
        by = [f"{busy.name!r} had {busy.cores:.1f} cores" for busy in self.busiest[:2]]
        return "; ".join([lost, *by])
