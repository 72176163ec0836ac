"""Agents that lived elsewhere become agents of a store."""
