"""What runs beneath the engine: versions and machine, and which of them go together."""
