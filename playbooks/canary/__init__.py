"""The canary: two engines at once, and traffic that moves from one to the other."""
