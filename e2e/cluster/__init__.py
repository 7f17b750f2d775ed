"""A one-node Kubernetes for tests and the demo, built from Go modules and run in a network namespace.

It knows nothing of Rampway's own resources: the chart, the examples and the tests bring those.
"""
