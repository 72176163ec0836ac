"""Rules about checkpoints, above the store: made from a State or a Store, no methods of them.

- **Policy**: when a checkpoint of an agent is made by itself (`policy`): **conditions** that
  compare a **metric** with a threshold (`conditions`, `metrics`), how often, how long it is kept.
- **Tracker**: one agent under its policies (`tracker`); the **engine** watches all of them behind
  a gate (`engine`), and a **worker** makes what they ask for (`worker`). The
  **optimizer** leads an agent's history through other settings (`optimizer`).
"""
