"""The kinds of declarations that there are."""

from __future__ import annotations

from holdfast.store.classes import Classed
from holdfast.store.declared import Declaration
from holdfast.store.ephemeral import Ephemeral
from holdfast.store.keep import Keep
from holdfast.store.lookups import Lookup
from holdfast.store.sticky import Sticky

KINDS: dict[str, type[Declaration]] = {
    kind.kind: kind for kind in (Classed, Ephemeral, Keep, Lookup, Sticky)
}
