"""Calibrations that ship, one file a model: `<identity of the weights>.json`."""
