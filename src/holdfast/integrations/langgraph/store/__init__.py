"""LangGraph's long-term memory in a Holdfast store."""
