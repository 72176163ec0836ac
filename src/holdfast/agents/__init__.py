"""What Holdfast does for agents, above the store: made from a State or a Store, no methods of them.

Glossary of this layer:

- **Component**: a part of what an agent is (its conversation, its tasks, its goals), under keys of
  its own below `$agent/`, with a type (`shapes`). What grows is a list or a key each.
- **Keys**: where the parts of this layer keep their data in the agent's scope, and changes that may
  write there (`keys`).
- **Letter**: a message to an agent, in its **mailbox** (`mailbox_keeping`, and a face each).
- **Cycle**: one round of an agent's work as it is noted; **signs** say when cycles have changed for
  the worse (`drift_signs`), and an **alarm** is what they say (`drift_keeping`, and a face each).
- **Loop**: what runs an agent (`looping`: when what is due; `loop_turns`: the run, told once;
  `loop_store`: checkpoints and restarts; a face each). **Step**: what an agent says of its work.

Import the modules themselves; this package re-exports nothing.
"""
