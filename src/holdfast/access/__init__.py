"""Who may reach what, and who did, above the store: made from a Store, no methods of it.

Glossary of this layer:

- **Grant**: a permission of a principal for scopes, kept in `custom:$access`. A **guard** asks for
  it at every call (`grants`).
- **Protection**: fields that are sealed or hashed inside their values, and what people are not
  shown (`protection`).
- **Audit**: a note of each read of a sensitive value (`audit`), in the **system scope**
  `custom:$audit`, which is journalled, sealed, chained and witnessed like any other. A note holds
  numbers and tags; the names are found when the audit is read.
"""

from __future__ import annotations

from holdfast.exports import lazy, names_of

HOMES = {
    "holdfast.access.audit": "Audit AuditedRead",
    "holdfast.access.grants": "Access Grant",
    "holdfast.access.protection": "CARD Protection SSN",
}
__all__ = names_of(HOMES)
__getattr__, __dir__ = lazy(__name__, HOMES)
