"""Numerics of the KV cache and the decoder: imports torch, nothing of EveWatch's."""

__version__ = "0.1.0"
