"""The commands, a module for each noun or for a few that belong together."""
