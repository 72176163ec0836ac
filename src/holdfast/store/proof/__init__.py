"""Verifying a store, and showing others that it is whole."""
