"""The one structure for everything long."""
