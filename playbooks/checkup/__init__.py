"""One look at the embedded engine: a watched load, a soak and a probe, as evidence."""
