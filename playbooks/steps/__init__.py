"""What a step takes and gives: one model a type, for files and commands alike. No torch."""
