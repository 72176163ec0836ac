"""Public names that are imported when they are first used.

`import holdfast` stays fast that way, and a blocking program never loads asyncio. A package says
where its names live as a table: a module, and its names. What has two faces stands there with the
blocking one; the async one is made of it (`store.names.face`).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:  # not from typing, which takes longer to load than all of this
    from collections.abc import Callable, Mapping
    from typing import Any

PARTS = (
    *("access", "agents", "backup", "checkpoints", "hooks"),
    *("recovery", "replicas", "runtime", "schemas", "testing"),
)
"""Packages with public names of their own, on both faces."""

OWNERS = (
    "holdfast.checkpoints.checkpoint_keys",
    "holdfast.access.grants",
    "holdfast.agents.agent_keys",
    "holdfast.hooks.hook_events",
    "holdfast.recovery.failure_kinds",
    "holdfast.runtime.runtime_records",
    "holdfast.schemas.schema",
    "holdfast.integrations",
)
"""Modules in which features declare the keys that they own (`store.rules.owned`): imported when
that is first asked, whatever the program uses."""


RULES = {"schema": "holdfast.schemas.schema:SchemaRule"}
"""Kinds of declarations that layers above the store have, and where: imported when one is met."""


def lazy(
    module: str,
    homes: Mapping[str, str],
    instead: Mapping[str, str] | None = None,
    *,
    blocking: bool = False,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module, of two tables; the second one goes before.

    It has async classes that are written by hand. With `blocking`, none are made.
    """
    home = {
        name: at for table in (homes, instead or {}) for at in table for name in table[at].split()
    }

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        at = import_module(home[name])
        found = getattr(at, name) if hasattr(at, name) else import_module(f"{home[name]}.{name}")
        face = getattr(found, "__dict__", {}).get("__face__")
        if face is not None and not blocking:
            found = face(found)
        setattr(import_module(module), name, found)  # so that it is looked for once
        return found

    package = import_module(module)
    return find, lambda: sorted({*vars(package), *home, *getattr(package, "__all__", ())})


def names_of(homes: Mapping[str, str]) -> list[str]:
    """`__all__` of a module, of its table."""
    return sorted(name for some in homes.values() for name in some.split())


class BlockingPart(ModuleType):
    """The module `holdfast.sync.<part>`: the names of `holdfast.<part>` on the blocking face."""

    def __getattr__(self, name: str) -> Any:
        part = import_module(self.__name__.replace(".sync.", "."))
        if name == "__all__" or not hasattr(part, "HOMES"):  # a part that has one face
            return getattr(part, name)
        found, _ = lazy(self.__name__, part.HOMES, blocking=True)
        return found(name)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *self.__all__})
