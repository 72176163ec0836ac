"""Checkpoints as files: written, read, and for people."""
