"""Names of classes, and the classes that they lead to.

A class is called `module:qualname`. A name leads to what is loaded already: reading never imports
a module that the data names, and looks into namespaces without running what they may define.
Classes of LangChain and LangGraph that many graphs store have short names, which stay the same
when their modules move; only these are imported.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from holdfast.errors import UnknownTypeError

_MESSAGES = {
    "base": "BaseMessage BaseMessageChunk",
    "human": "HumanMessage HumanMessageChunk",
    "ai": "AIMessage AIMessageChunk",
    "system": "SystemMessage SystemMessageChunk",
    "chat": "ChatMessage ChatMessageChunk",
    "tool": "ToolMessage ToolMessageChunk",
    "function": "FunctionMessage FunctionMessageChunk",
    "modifier": "RemoveMessage",
}
SHORT = {
    **{
        name: f"langchain_core.messages.{module}:{name}"
        for module, names in _MESSAGES.items()
        for name in names.split()
    },
    **{
        name: f"langgraph.types:{name}"
        for name in ("Command", "Interrupt", "Overwrite", "Send", "TimeoutPolicy")
    },
    "DeltaSnapshot": "langgraph.checkpoint.serde.types:_DeltaSnapshot",
    "Document": "langchain_core.documents.base:Document",
    "Item": "langgraph.store.base:Item",
    "SearchItem": "langgraph.store.base:SearchItem",
}
_SHORT_OF = {name: short for short, name in SHORT.items()}
_OWN = frozenset(("langchain", "langchain_core", "langgraph", "langgraph_sdk"))


def long_name(cls: type) -> str:
    """module:qualname."""
    return f"{cls.__module__}:{cls.__qualname__}"


def name_of(cls: type) -> str:
    """What a class is called in records."""
    name = long_name(cls)
    return _SHORT_OF.get(name, name)


def is_own(cls: type) -> bool:
    """Whether a class is of LangChain, LangGraph or Python itself."""
    package = str(cls.__module__).partition(".")[0]
    return package in _OWN or package == "builtins"


def find(name: str) -> type | None:
    """The class that a name leads to in this process; None if it is not there."""
    module, _, path = SHORT.get(name, name).partition(":")
    if name in SHORT:
        with suppress(ImportError):
            import_module(module)
    found: Any = sys.modules.get(module)
    for step in path.split("."):
        # Not getattr: a module or a class may import or compute what it is asked for.
        try:
            found = object.__getattribute__(found, "__dict__").get(step)
        except AttributeError:
            return None
    return found if isinstance(found, type) else None


def unknown(name: str) -> UnknownTypeError:
    """The error for a name that leads to nothing here."""
    module, colon, path = name.partition(":")
    if colon and module not in sys.modules:
        told = f"the module {module} is not loaded; import it before reading"
    elif colon:
        told = f"{module} has no class {path}"
    else:
        told = "no class is registered under that name"
    return UnknownTypeError(
        f"a stored value is a {name!r}, but {told}; if the class has another name now: "
        f"saver.types.register(TheClass, also=[{name!r}])"
    )
