"""The host as a witness: what the machine did to a process while something was measured.

No torch. Reads /proc and the control groups; what is not told there is None.
"""

from engine.observing.host.evidence import DISTURBED, Busy, HostEvidence
from engine.observing.host.processes import Held, held_by, listening_pid, pid_behind
from engine.observing.host.reading import Places, Reading, look
from engine.observing.host.witness import Look, Witness, silent

__all__ = [
    "DISTURBED", "Busy", "Held", "HostEvidence", "Look", "Places", "Reading", "Witness", "held_by",
    "listening_pid", "look", "pid_behind", "silent",
]  # fmt: skip
