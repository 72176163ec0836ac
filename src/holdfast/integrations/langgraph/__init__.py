"""LangGraph on Holdfast: `HoldfastSaver` keeps checkpoints, `HoldfastStore` long-term memory.

Needs `pip install holdfast[langgraph]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    raise ImportError(
        "holdfast.integrations.langgraph needs LangGraph: pip install 'holdfast[langgraph]'"
    ) from error

from holdfast.integrations.langgraph.saver import HoldfastSaver, open_saver
from holdfast.integrations.langgraph.types import Types

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.store.langgraph_store import HoldfastStore

__all__ = ["HoldfastSaver", "HoldfastStore", "Types", "open_saver"]


def __getattr__(name: str) -> object:
    """The store is imported when it is asked for: a saver needs nothing of it."""
    if name == "HoldfastStore":
        from holdfast.integrations.langgraph.store.langgraph_store import HoldfastStore

        return HoldfastStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
