"""Objectives: what is promised to callers, how much of it may be missed, and how much was."""
