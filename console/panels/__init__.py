"""Thin widgets: they draw the last ScreenState through a renderable, and repaint what changed."""
