"""Pruning, erasing, rotation of keys: what is done to a store beside its use."""
