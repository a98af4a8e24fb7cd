"""From a metrics page of another engine to a Snapshot. Only engine.remote comes in."""
