"""What panels draw: plain functions from a ScreenState and a size to lines of text with roles.

No widget, no colour, no engine: a role ("value", "trouble", "sealed") becomes a colour in the
panel, so these are tested by comparing text.
"""
