"""Where the repository is, for tests that read its files or start its programs."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
