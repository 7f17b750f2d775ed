"""Rampway's serving engine: a paged, continuously batching LLM server behind an OpenAI API."""
