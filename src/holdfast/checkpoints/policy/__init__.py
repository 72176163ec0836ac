"""Policies: when checkpoints are made by themselves, and what that costs."""
