"""What Holdfast does for agents, above the store: made from a State or a Store, no methods of them.

Glossary of this layer:

- **Keys**: where the parts of this layer keep their data in the agent's scope, and changes that may
  write there (`agent_keys`).
- **Component**: a part of what an agent is (its conversation, its tasks, its goals), under keys of
  its own below `$agent/`, with a type (`state.shapes`, `state.components`). What grows is a list or
  a key each. What is wrong with one is gathered by its type (`state.checks`) and by rules between
  them (`state.rules`).
- **Draft**: writes to components that become one change (`state.draft`); `state.component_reader`
  is the rest of what the two faces of `AgentState` share (`state.agent_state`,
  `state.agent_state_async`), `state.capture` gives all components of a checkpoint as one object.
- **Attached**: an object of any class that is kept in a state (`attachment`, `attach`,
  `attach_async`), by what differs from its last save (`attach_fields`). Its **life** is started,
  paused, resumed and stopped. `agent_protocol` says what an agent may have for it, `agent` is a
  base class that has it.
- **Registry**: who the agents of a store are, and which run here (`agent_info`, `registry`). An
  **identity** stays when the agent does not run; whoever runs it holds its lease.
- **Machine**: where an agent is among declared states, and how it got there (`machines`).
- **Effect**: something that must not happen twice, with its intent and its result (`effects`).
- **Handover**: a task that one agent offers and another accepts or refuses (`handover`).
- **Letter**: a message to an agent, in its **mailbox** (`mailbox_book`, and a face each).
- **Cycle**: one round of an agent's work as it is noted; **signs** say when cycles have changed for
  the worse (`drift_signs`), and an **alarm** is what they say (`drift_cycles`, and a face each).
- **Loop**: what runs an agent (`loop.decide`: when what is due; `loop.loop_run`: what it runs;
  `loop.turns`: the run, told once; `loop.calls`: what it asks of a face; `loop.loop_store`:
  checkpoints and restarts; `loop.check`: whether it did its work; a face each). **Worked**: what an
  agent says of a step.

Import the modules themselves; this package re-exports nothing.
"""
