# Written by scripts/stubs.py from the blocking classes; not to be edited.

from holdfast.runtime.bus import Bus as Bus
from holdfast.runtime.bus import Message as Message
from holdfast.runtime.cached import Cached as Cached
from holdfast.runtime.cached import Composition as Composition
from holdfast.runtime.cached import Compositions as Compositions
from holdfast.runtime.cached import Conversation as Conversation
from holdfast.runtime.cached import Conversations as Conversations
from holdfast.runtime.entities import Entities as Entities
from holdfast.runtime.entities import Entity as Entity
from holdfast.runtime.entities import Graph as Graph
from holdfast.runtime.entities import Relationship as Relationship
from holdfast.runtime.events import Event as Event
from holdfast.runtime.events import EventChain as EventChain
from holdfast.runtime.events import Events as Events
from holdfast.runtime.events import EventStats as EventStats
from holdfast.runtime.events import EventSubscription as EventSubscription
from holdfast.runtime.life_cycle import Runtime as Runtime
from holdfast.runtime.life_cycle import handles as handles
from holdfast.runtime.observations import Observations as Observations
from holdfast.runtime.queue import Queue as Queue
from holdfast.runtime.requests import Request as Request
from holdfast.runtime.requests import Requests as Requests
