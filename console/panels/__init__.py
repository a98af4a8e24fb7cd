"""Thin widgets: they hold the last Frame, draw it through a renderable, repaint what changed."""
