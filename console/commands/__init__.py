"""Commands of their own file, and what all commands share."""
