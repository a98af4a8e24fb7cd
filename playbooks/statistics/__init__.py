"""Intervals, knees and ratios of quantiles: numbers in, numbers out."""
