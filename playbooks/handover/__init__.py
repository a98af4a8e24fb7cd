"""Handover: one page for who comes next, from what was told, written down and kept."""
