"""Checklists: what to look at before a holiday, a rollout, an upgrade."""
