"""Adapters to systems that keep a part of our truth: the external ReceiptGate."""
