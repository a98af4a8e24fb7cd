"""The golden set: prompts that every quality check runs, one file a category."""
