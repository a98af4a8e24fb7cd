"""Faults on purpose, so that the diagnosis can be tried. Only by explicit flag."""
