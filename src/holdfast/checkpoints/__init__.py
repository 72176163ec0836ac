"""Rules about checkpoints, above the store: made from a State or a Store, no methods of them.

Glossary of this layer:

- **Policy**: when a checkpoint of an agent is made by itself (`policy`): **conditions** that
  compare a **metric** with a threshold (`conditions`, `metrics`), how often, how long it is kept.
- **Tracker**: one agent under its policies (`tracker`); the **engine** watches all of them behind
  a gate (`engine`), and a **worker** makes what they ask for (`worker`). The
  **optimizer** leads an agent's history through other settings (`optimizer`).
- **Retention**: which checkpoints stay, by **rules** (`rules`), and pruning the rest (`retention`).
- **Export**: a checkpoint as one file that stands for itself: signed, encrypted if a key is given,
  read in bounded time and memory (`exports`, `export_files`, `export_records`).
- **Readable forms**: the same state as JSON for people (`readable_json`) and as a Protocol Buffers
  message for programs (`readable_protobuf`, `checkpoint.proto`). They are not imported.
- **Import**: what is in an export becomes the state of a scope, by a restore that can be undone
  (`importing`).

Import the modules themselves; this package re-exports nothing.
"""
