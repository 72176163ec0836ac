"""The loop that runs an agent: its turns, what it decides, and whether it kept the agent safe."""
