"""One module a contestant: how to ask it what a prefix cache is asked.

Knows no case: `worker` says what to measure.
"""
