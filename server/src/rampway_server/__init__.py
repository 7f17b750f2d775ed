"""Rampway's serving engine: a paged, continuously batching LLM server behind an OpenAI API."""

__version__ = "0.1.0"
"""The version in pyproject.toml; a test compares the two."""
