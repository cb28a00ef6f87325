"""The HTTP surface: the worker protocol, the ledger, tasks, events, health."""
