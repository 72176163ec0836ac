"""The typed state of an agent: its components, their shapes and rules, and drafts of changes."""
