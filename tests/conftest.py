"""One torch thread a test process: the tests run side by side. Triton runs interpreted.

On a CUDA machine, `TRITON_INTERPRET=0 pytest tests/kernels` compiles and runs the kernels.
"""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_finish() -> None:
    """What imports and collection left is no concern of a test that counts objects.

    A leak check looks at every object that can be looked at: half a million, most of them torch's.
    """
    gc.collect()
    gc.freeze()
