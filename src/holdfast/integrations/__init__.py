"""Frameworks that keep their state in Holdfast, one package each; each takes an open store.

Nothing here is imported unless it is asked for, and each part needs the extra of its name, for
example `holdfast[langgraph]`.
"""
