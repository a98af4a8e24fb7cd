"""Recordings: Snapshots into a file, and a file as an engine. Console and commands come in."""
