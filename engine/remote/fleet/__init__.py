"""Several external engines as one. The console and engine.remote come in."""
