"""The worker SDK: a client of the HTTP API, and workers that run handlers under leases."""
