"""Exit codes of every command."""

from enum import IntEnum


class Exit(IntEnum):
    PASSED = 0
    GATE_FAILED = 1
    USAGE = 2
    """Usage or configuration error: nothing was run."""
    INCONCLUSIVE = 3
    """Evidence is missing."""
    UNREACHABLE = 4
    """The target cannot be reached, or the engine failed."""
    INTERRUPTED = 130


OF_VERDICT = {
    "pass": Exit.PASSED,
    "warn": Exit.PASSED,
    "fail": Exit.GATE_FAILED,
    "inconclusive": Exit.INCONCLUSIVE,
    "error": Exit.UNREACHABLE,
}
