"""Procedures that an operator runs against an engine: load, measurements, health checks."""
