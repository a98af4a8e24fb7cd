"""One torch thread a test process: the tests run side by side. Triton runs interpreted.

On a CUDA machine, `TRITON_INTERPRET=0 pytest tests/kernels` compiles and runs the kernels.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")
