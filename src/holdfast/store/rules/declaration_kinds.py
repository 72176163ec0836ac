"""The kinds of declarations that there are."""

from __future__ import annotations

from holdfast.store.rules.classes import Classed
from holdfast.store.rules.declared import Declaration
from holdfast.store.rules.ephemeral import Ephemeral
from holdfast.store.rules.keep import Keep
from holdfast.store.rules.lookup import Lookup
from holdfast.store.rules.sticky import Sticky

KINDS: dict[str, type[Declaration]] = {
    kind.kind: kind for kind in (Classed, Ephemeral, Keep, Lookup, Sticky)
}
