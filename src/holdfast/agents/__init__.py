"""What Holdfast does for agents, above the store: made from a State or a Store, no methods of them.

Glossary of this layer:

- **Keys**: where the parts of this layer keep their data in the agent's scope, and changes that may
  write there (`keys`).
- **Component**: a part of what an agent is (its conversation, its tasks, its goals), under keys of
  its own below `$agent/`, with a type (`shapes`, `components`). What grows is a list or a key each.
  What is wrong with one is gathered by its type (`checking`) and by rules between them (`rules`).
- **Draft**: writes to components that become one change (`draft`); `reading` is the rest of what
  the two faces of `AgentState` share (`agent_state`, `async_agent_state`), `capturing` gives all
  components of a checkpoint as one object.
- **Attached**: an object of any class that is kept in a state (`attachment`, `attaching`,
  `async_attaching`), by what differs from its last save (`saving`). Its **life** is started,
  paused, resumed and stopped. `protocols` says what an agent may have for it, `agent` is a base
  class that has it.
- **Registry**: who the agents of a store are, and which run here (`registering`, `registry`). An
  **identity** stays when the agent does not run; whoever runs it holds its lease.
- **Machine**: where an agent is among declared states, and how it got there (`machines`).
- **Effect**: something that must not happen twice, with its intent and its result (`effects`).
- **Handover**: a task that one agent offers and another accepts or refuses (`handovers`).
- **Letter**: a message to an agent, in its **mailbox** (`mailbox_keeping`, and a face each).
- **Cycle**: one round of an agent's work as it is noted; **signs** say when cycles have changed for
  the worse (`drift_signs`), and an **alarm** is what they say (`drift_keeping`, and a face each).
- **Loop**: what runs an agent (`looping`: when what is due; `loop_running`: what it runs;
  `loop_turns`: the run, told once; `loop_asking`: what it asks of a face; `loop_store`: checkpoints
  and restarts; `loop_checking`: whether it did its work; a face each).
  **Worked**: what an agent says of a step.

Import the modules themselves; this package re-exports nothing.
"""
