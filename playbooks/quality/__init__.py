"""What `steps/quality.py` is made of: cases, arms, metrics, limits, controls."""
