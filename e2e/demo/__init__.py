"""`make demo`: the four user stories on a real cluster with a real model, told as they happen."""
