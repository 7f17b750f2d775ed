"""The decisions: pure functions over plain data. No I/O, no clock, no environment in here."""
