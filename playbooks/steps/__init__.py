"""Procedures that a playbook or a command runs: one a file."""
