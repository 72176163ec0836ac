"""Who may reach what, and who did, above the store: made from a Store, no methods of it.

Glossary of this layer:

- **Audit**: a note of each read of a sensitive value (`audit`), in the **system scope**
  `custom:$audit`, which is journalled, sealed, chained and witnessed like any other. A note holds
  numbers and tags; the names are found when the audit is read.
"""

from __future__ import annotations

from holdfast.exports import lazy

__all__ = [
    "Audit",
    "Read",
]

HOMES = {
    "holdfast.access.audit": "Audit Read",
}
__getattr__, __dir__ = lazy(__name__, HOMES)
