"""Threads of LangGraph's own savers, imported and verified."""
