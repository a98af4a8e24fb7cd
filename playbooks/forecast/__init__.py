"""What traffic comes, what engines make of it, what to set. Steps, commands, screens come in."""
