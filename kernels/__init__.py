"""Numerics of the KV cache and the decoder: imports torch, nothing of EveWatch's."""

import os

__version__ = "0.1.0"

# torch's own operations run on OpenMP's threads. An idle one spins for milliseconds by default,
# and whoever else needs its core (the console is in this very process) makes the next parallel
# loop wait out a time slice: 16-32 ms measured for 0.1 ms of work. After some 50 µs it had better
# sleep. OpenMP reads this once, when torch is imported, so this package has to be imported before.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
