"""Playbook files and running them: steps, gates, conditions, events. Commands, screens come in."""
