"""One torch thread a test process: the tests run side by side. Triton runs interpreted.

On a CUDA machine, `TRITON_INTERPRET=0 pytest tests/kernels` compiles and runs the kernels.
"""

import gc
import os
import signal
from collections.abc import Iterator
from functools import cache

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from engine.observing.host import silent

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background: programs that tests start and interrupt would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and as much time as a busy machine takes for them.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)
"""A process builds its commands once; here one would build them for every call."""


@pytest.fixture(autouse=True, scope="session")
def host_that_tells_nothing() -> Iterator[None]:
    """Tests run side by side, with one thread each: what that does to an engine is no finding.

    Tests of the witness itself bring a host of their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.observing.host.witness.look", lambda *_: silent())
        yield


@pytest.fixture(autouse=True, scope="module")
def earlier_objects_are_frozen() -> None:
    """What imports and other files' tests left is no concern of a test that counts objects.

    A leak check looks at every object that can be looked at: half a million, most of them torch's.
    """
    gc.collect()
    gc.freeze()
