"""Tenure: a work queue for fleets of agents, where a task is held on a lease and recovered when its holder goes quiet.

Importing the package imports nothing else: a command-line process pays only for the parts it uses.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
