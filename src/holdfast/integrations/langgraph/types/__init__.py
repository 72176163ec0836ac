"""Python objects of a graph's state, in plain form and back."""
