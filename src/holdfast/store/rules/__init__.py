"""What the owner of a scope declares, and every writer follows."""
