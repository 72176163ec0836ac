"""Setting an agent up by one document."""
