"""Rampway's operator: rolls out LLM serving images on Kubernetes by evidence."""
