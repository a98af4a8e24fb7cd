"""Files that ship with the engine."""
