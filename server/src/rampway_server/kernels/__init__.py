"""Kernels, one a file: a Triton kernel and the torch reference that is its specification."""
