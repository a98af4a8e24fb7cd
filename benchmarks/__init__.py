"""Measurements that take minutes, and no part of the tests: `python -m benchmarks.bench_…`.

They build their engines and stubs with the helpers of the tests.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
