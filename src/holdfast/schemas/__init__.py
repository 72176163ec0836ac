"""Schemas: what values have to be, in versions, and how older values become newer ones.

Glossary of this layer:

- **Schema**: what values below a prefix are (`schema`), by **fields** that become one JSON Schema
  (`fields`).
- **Step** and **transform**: how values of one version become those of the next (`transforms`).
- **Migration**: what leads the values of a scope to a newer version (`migrations`).
- **Compatible**: whether one version reads the data of another (`compatibility`).
"""

from __future__ import annotations

from holdfast.exports import lazy, names_of

HOMES = {
    "holdfast.schemas.compatibility": "MigrationCheck check_migration",
    "holdfast.schemas.fields": "AnyValue Flag ListOf Mapping Number Text Timestamp",
    "holdfast.schemas.migrations": "MigrationReport Migrations Schemas",
    "holdfast.schemas.schema": "Schema SemanticVersion",
    "holdfast.schemas.transforms": (
        "Convert Copy Custom Default Merge Move Remove Split Step transform"
    ),
}
__all__ = names_of(HOMES)
__getattr__, __dir__ = lazy(__name__, HOMES)
