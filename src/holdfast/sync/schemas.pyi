# Written by scripts/stubs.py from the blocking classes; not to be edited.

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
from holdfast.schemas.migrations import Migrations as Migrations
from holdfast.schemas.migrations import Schemas as Schemas
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
