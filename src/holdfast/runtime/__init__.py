"""What an agent daemon needs around its agents, above the store: made from a State or a Store.

Glossary of this layer:

- **Entity**: a thing with a type and properties, and typed **relationships** to others, in a scope
  (`entities`).
- **Event**: something that happened in the infrastructure, in a ring in memory and in batches in a
  scope of their own (`events`).
- **Module** and **phase**: what a daemon is made of, and the order of its life, and what modules
  answer by name (`life_cycle`).
- **Observation**: an agent that is told of what another does, by a subscription that is kept as an
  entity (`observations`).
- **Request**: work that a session asks for, in its mailbox; one at a time (`requests`).
- **Queue**: items of a state, each taken by one (`queue`).
- **Bus**: topics in the memory of one event loop, of which nothing is kept (`bus`).
- **Cached**: a value that is built again when it is too old; indexes of files are made so
  (`cached`).
"""

from __future__ import annotations

from holdfast.exports import lazy, names_of

HOMES = {
    "holdfast.runtime.bus": "Bus Message",
    "holdfast.runtime.cached": "Cached Composition Compositions Conversation Conversations",
    "holdfast.runtime.entities": "Entities Entity Graph Relationship",
    "holdfast.runtime.events": "Event EventChain EventStats EventSubscription Events",
    "holdfast.runtime.life_cycle": "Runtime handles",
    "holdfast.runtime.observations": "Observations",
    "holdfast.runtime.queue": "Queue",
    "holdfast.runtime.requests": "Request Requests",
}
__all__ = names_of(HOMES)
__getattr__, __dir__ = lazy(__name__, HOMES)
