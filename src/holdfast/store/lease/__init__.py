"""Leases: one holder at a time."""
