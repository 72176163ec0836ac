"""Frameworks that keep their state in Holdfast, one package each; each takes an open store.

Nothing here is imported unless it is asked for, and each part needs the extra of its name, for
example `holdfast[langgraph]`.
"""

from __future__ import annotations

from holdfast.store.inner import Owned

NEEDS = Owned("$needs/", needs=True).prefix
"""State that is made of its past has a key below it: the first entry of main that is needed."""
