"""Thin widgets: they hold the last ScreenState, draw it through a renderable, repaint what changed."""
