"""The quality check: cases, arms, metrics, limits, controls. The commands and playbooks come in."""
