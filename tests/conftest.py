"""One torch thread a test process: the tests run side by side."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
