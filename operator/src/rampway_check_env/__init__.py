"""Answers before an engine may start whether this image can run on this node.

Standard library only and Python 3.8 syntax, because it runs inside images it knows nothing about.
It does not know Kubernetes: it prints a report, leaves a termination message and an exit code.
"""
