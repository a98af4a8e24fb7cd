"""Traffic: when requests arrive, how long they are, and who sends them."""
