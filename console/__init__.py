"""The operator's console: screens, commands, and the one bridge to an engine."""
