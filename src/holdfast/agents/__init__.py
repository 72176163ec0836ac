"""What Holdfast does for agents, above the store: made from a State or a Store, no methods of them.

Glossary of this layer:

- **Keys**: where the parts of this layer keep their data in the agent's scope, and changes that may
  write there (`agent_keys`).
- **Component**: a part of what an agent is (its conversation, its tasks, its goals), under keys of
  its own below `$agent/`, with a type (`state.shapes`, `state.components`). What grows is a list or
  a key each. What is wrong with one is gathered by its type and by rules between them
  (`state.checks`).
- **Draft**: writes to components that become one change (`state.draft`); they are read
  and written by `AgentState` (`state.agent_state`), which gives all components of a
  checkpoint as one object.
- **Attached**: an object of any class that is kept in a state (`attached`), by what differs
  from its last save (`attach_fields`). Its **life** is started, paused, resumed and stopped.
  `PersistentAgent` says what an agent may have for it, `agent` is a base class that has it.
- **Registry**: who the agents of a store are, and which run here (`agent_registry`). An
  **identity** stays when the agent does not run; whoever runs it holds its lease.
- **Machine**: where an agent is among declared states, and how it got there (`machines`).
- **Effect**: something that must not happen twice, with its intent and its result (`effects`,
  on the records of `effect_records`).
- **Handover**: a task that one agent offers and another accepts or refuses (`handover`).
- **Letter**: a message to an agent, in its **mailbox** (`mailbox`, on `mailbox_records`).
- **Cycle**: one round of an agent's work as it is noted; **signs** say when cycles have changed for
  the worse, and an **alarm** is what they say (`drift`).
- **Loop**: what runs an agent (`loop.decide`: when what is due; `loop.turns`: the run, with its
  checkpoints and restarts; `loop.check`: whether it did its work). **Step result**: what an agent
  says of a step.
"""

from __future__ import annotations

from holdfast.exports import lazy, names_of

HOMES = {
    "holdfast.agents.agent": "Agent",
    "holdfast.agents.agent_registry": "AgentInfo Agents",
    "holdfast.agents.attached": "Attached PersistentAgent attach",
    "holdfast.agents.drift": "Drift DriftAlarm DriftSignal DriftStatus",
    "holdfast.agents.effect_records": "Effect",
    "holdfast.agents.effects": "Effects",
    "holdfast.agents.handover": "Handovers",
    "holdfast.agents.handover_package": "Handover HandoverPackage",
    "holdfast.agents.loop.check": "LoopReport check_loop",
    "holdfast.agents.loop.decide": "LoopResult LoopSettings StepResult",
    "holdfast.agents.loop.loop": "Loop run",
    "holdfast.agents.machines.definition": (
        "MachineArrow MachineDefinition MachineRule MachineState"
    ),
    "holdfast.agents.machines.machine": "Machine MachineLimits",
    "holdfast.agents.machines.machine_records": (
        "MachineIntent MachineRecovered MachineSnapshot MachineStep Transition"
    ),
    "holdfast.agents.mailbox": "Letter Mail Mailbox MailboxStatus",
    "holdfast.agents.retry": "RetryPolicy failure_kind",
    "holdfast.agents.state.agent_file": "export_agent",
    "holdfast.agents.state.agent_state": "AgentState",
    "holdfast.agents.state.components": "Component",
    "holdfast.agents.state.shapes": "Message Task ToolCall",
    "holdfast.agents.folder": "ImportedAgent import_folder",
}
__all__ = names_of(HOMES)
__getattr__, __dir__ = lazy(__name__, HOMES)
