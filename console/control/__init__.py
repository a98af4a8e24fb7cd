"""What the console does and remembers for the operator: changes, runs, a talk. No widgets."""
