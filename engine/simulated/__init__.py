"""The same loop in virtual time: step times from a cost model instead of a model. No torch."""
