"""Everything that talks: to the API server, to pods, to the clock. What to do is decided in core."""
