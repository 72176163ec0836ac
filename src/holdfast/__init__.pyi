# Written by scripts/stubs.py from the blocking classes; not to be edited.

from holdfast import access as access
from holdfast import agents as agents
from holdfast import backup as backup
from holdfast import checkpoints as checkpoints
from holdfast import errors as errors
from holdfast import recovery as recovery
from holdfast import replicas as replicas
from holdfast import sync as sync
from holdfast import testing as testing
from holdfast.errors import HoldfastError as HoldfastError
from holdfast.seal.codec import Typed as Typed
from holdfast.seal.codec import ValueLimits as ValueLimits
from holdfast.seal.registry import Registry as Registry
from holdfast.seal.registry import register as register
from holdfast.seal.subject_keys import ERASED as ERASED
from holdfast.store.commit.change import Written
from holdfast.store.commit.gates import Gate as Gate
from holdfast.store.history.handle import ChangeParts
from holdfast.store.history.merge import MergeConflict as MergeConflict
from holdfast.store.lease import Lease as Lease
from holdfast.store.names.cause import Cause as Cause
from holdfast.store.names.clock import Clock as Clock
from holdfast.store.names.items import Checkpoint as Checkpoint
from holdfast.store.names.items import Entry as Entry
from holdfast.store.names.items import Item as Item
from holdfast.store.names.items import Page as Page
from holdfast.store.names.items import Position as Position
from holdfast.store.names.scope import Scope as Scope
from holdfast.store.proof.prove import Proof as Proof
from holdfast.store.proof.verify_report import Report as Report
from holdfast.store.read.find import Begins as Begins
from holdfast.store.read.find import Range as Range
from holdfast.store.rules.classes import Classed as Classed
from holdfast.store.rules.ephemeral import Ephemeral as Ephemeral
from holdfast.store.rules.gate_request import GateReading as GateReading
from holdfast.store.rules.gate_request import GateRequest as GateRequest
from holdfast.store.rules.gate_request import Operation as Operation
from holdfast.store.rules.keep import Keep as Keep
from holdfast.store.rules.lookup import Lookup as Lookup
from holdfast.store.rules.sticky import Sticky as Sticky
from holdfast.store.state_async import ChangePart
from holdfast.store.state_async import State as State
from holdfast.store.state_async import View as View
from holdfast.store.state_async import Watch as Watch
from holdfast.store.store_async import Store as Store
from holdfast.store.store_async import open as open
from holdfast.store.tree.difference import DELETED as DELETED
from holdfast.store.tree.difference import Diff as Diff

__version__: str

class Change:
    """A change over several scopes: `change[state]` is the part for one of them."""
    def __init__(self, parts: ChangeParts) -> None: ...
    entries: list[Written]
    def __getitem__(self, state: State | Scope | str) -> ChangePart: ...
    @property
    def repeated(self) -> bool:
        """Once the block has ended: whether it had been applied before, and so was not now."""
