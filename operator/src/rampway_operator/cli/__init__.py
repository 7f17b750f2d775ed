"""The kubectl plugin `kubectl rampway`: shows what the operator decided, and asks it for decisions."""
