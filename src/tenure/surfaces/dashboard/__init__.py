"""The dashboard: a page that reads and writes through the engine's verbs like every other surface."""
