"""Prefix caches: one contract (`protocol`) and the implementations behind it.

Knows nothing of requests, batches or tensors.
"""
