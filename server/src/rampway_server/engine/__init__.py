"""The engine: requests in, token steps out; it knows no HTTP and no tensors."""
