"""What a step takes and gives: one model a type, for files and commands alike. No torch."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Told how far a step is: what is done, of how much."""
