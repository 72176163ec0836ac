"""What Holdfast does for agents, above the store: made from a State or a Store, no methods of them.

Glossary of this layer:

- **Component**: a part of what an agent is (its conversation, its tasks, its goals), under keys of
  its own below `$agent/`, with a type (`shapes`). What grows is a list or a key each.
- **Keys**: where the parts of this layer keep their data in the agent's scope, and changes that may
  write there (`keys`).

Import the modules themselves; this package re-exports nothing.
"""
