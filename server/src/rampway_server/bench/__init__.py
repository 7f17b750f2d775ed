"""Benchmarks of the cache and of the server: `rampway-server bench`.

Nothing of the server imports it; it imports peers only inside the processes that measure them.
"""
