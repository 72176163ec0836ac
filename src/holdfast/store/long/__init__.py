"""Long values: written and read in pieces."""
