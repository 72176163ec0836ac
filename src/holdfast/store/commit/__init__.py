"""A change becomes an entry: asked for, built, committed in a group."""
