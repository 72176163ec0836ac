"""Rules about checkpoints, above the store: made from a State or a Store, no methods of them.

Glossary of this layer:

- **Policy**: when a checkpoint of an agent is made by itself (`policy.policy`): **conditions** that
  compare a **metric** with a threshold (`policy.conditions`, `policy.metrics`), how often, how long
  it is kept.
- **Tracker**: one agent under its policies (`policy.tracker`); the **engine** watches all of them
  behind a gate (`policy.policy_engine`), and a **worker** makes what they ask for
  (`policy.worker`). The **optimizer** leads an agent's history through other settings
  (`policy.optimizer`).
- **Retention**: which checkpoints stay, by **rules** (`retention_rules`), and pruning the rest
  (`retention`).
- **Export**: a checkpoint as one file that stands for itself: signed, encrypted if a key is given,
  read in bounded time and memory (`export.exports`, `export.file`, `export.records`).
- **Readable forms**: the same state as JSON for people (`export.readable_json`) and as a Protocol
  Buffers message for programs (`export.readable_protobuf`, `checkpoint.proto`). They are not
  imported.
- **Import**: what is in an export becomes the state of a scope, by a restore that can be undone
  (`export.read`).

Import the modules themselves; this package re-exports nothing.
"""
