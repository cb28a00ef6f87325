"""A fleet on a virtual clock, from one seed: the real engine, a real SQLite file, and everything that can go wrong."""
