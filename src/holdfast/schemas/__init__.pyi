# Written by scripts/stubs.py from the blocking classes; not to be edited.

from collections.abc import Sequence

from holdfast.schemas.compatibility import MigrationCheck as MigrationCheck
from holdfast.schemas.compatibility import check_migration as check_migration
from holdfast.schemas.fields import AnyValue as AnyValue
from holdfast.schemas.fields import Flag as Flag
from holdfast.schemas.fields import ListOf as ListOf
from holdfast.schemas.fields import Mapping as Mapping
from holdfast.schemas.fields import Number as Number
from holdfast.schemas.fields import Text as Text
from holdfast.schemas.fields import Timestamp as Timestamp
from holdfast.schemas.migrations import MigrationReport as MigrationReport
from holdfast.schemas.schema import Schema as Schema
from holdfast.schemas.schema import SemanticVersion as SemanticVersion
from holdfast.schemas.transforms import Convert as Convert
from holdfast.schemas.transforms import Copy as Copy
from holdfast.schemas.transforms import Custom as Custom
from holdfast.schemas.transforms import Default as Default
from holdfast.schemas.transforms import Merge as Merge
from holdfast.schemas.transforms import Move as Move
from holdfast.schemas.transforms import Remove as Remove
from holdfast.schemas.transforms import Split as Split
from holdfast.schemas.transforms import Step as Step
from holdfast.schemas.transforms import transform as transform
from holdfast.store.store_async import Store

class Migrations:
    """Leads values to the versions of schemas that scopes declare."""
    def __init__(self, store: Store) -> None: ...
    async def validate(self, old: Schema, new: Schema, level: str = "strict") -> MigrationCheck:
        """Whether the steps of a newer schema lead there from an older one, and how risky it is."""
    async def run(
        self,
        scope: str,
        schema: str,
        *,
        to: int | None = None,
        key: str | None = None,
        dry_run: bool = False,
        batch_size: int = ...,
        timeout: float = ...,
    ) -> Sequence[MigrationReport]:
        """Migrate the values of a schema in a scope, or in all that fit a pattern; a report each.

        Each value is led from its own version. What fails is named with its key, and then nothing
        of that scope is taken over. `to` is the version that is declared; with `key` one value
        alone. A checkpoint of the type `migration` is made first. A dry run does all but taking it
        over. After `timeout` seconds it is given up, and goes on when it is run again. As
        long it waits for another that runs the migrations of that schema, then `LeaseHeldError`.
        """
    async def status(self, scope: str, schema: str) -> Sequence[MigrationReport]:
        """How far the migrations of a schema are: a report for each scope that declares it."""

class Schemas:
    """The schemas that the scopes of a store have declared, in all their versions."""
    def __init__(self, store: Store) -> None: ...
    async def get(self, name: str, version: int | None = None) -> Schema:
        """A schema by its name, of a version or the newest that was declared anywhere."""
    async def history(self, name: str) -> Sequence[Schema]:
        """All versions of a schema, the oldest first."""
    async def list(self) -> Sequence[Schema]:
        """The newest version of each schema, by their names."""
