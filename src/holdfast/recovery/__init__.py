"""From any failure back to work: by procedure, one at a time for each agent, with evidence.

Glossary of this layer:

- **Failure**: what went wrong with an agent, as data: a kind, how grave it is, what is known
  (`failure_kinds`).
- **Procedure**: the steps that answer a failure, as data (`procedure`): what is done, in
  which order, how long it may take, what is checked at the end, how it is undone.
- **Step type**: what one step does (`steps`); users register their own.
- **Strategy**: one way to a good state (`strategies`); they are tried in an order until one serves.
- **Recovery**: a procedure at work on one agent, under a lease (`run`, `recovery`). What it did
  is kept in a scope of its own (`records`): one that is killed goes on, or is rolled back.
- **Finding failure**: a watchdog over agents that run (`watchdog`), boot recovery of what was
  unfinished (`boot_recovery`), and a scrubber (`scrub`) that heals rows from copies (`heal`).
- **Report**: what was found, tried, done and lost (`report`), under a checkpoint, which is
  signed if the signer is there; also as a page.
- **Configuration**: how an agent's state is to be kept, as one document (`setup.configuration`);
  setting it up (`setup.managed`) says what is in force, and starts what runs beside the agent.
- **Part**: one job of what runs beside an agent (`setup.parts`); the supervisor
  (`setup.supervisor`) starts it again.
- **Alert**: what is out of bounds, told by several ways, until it resolves (`setup.alerts`).
- **Health**: how well a store is, with reasons and next steps (`health`).
"""

from __future__ import annotations

from holdfast.exports import lazy, names_of

HOMES = {
    "holdfast.recovery.boot_recovery": "BootItem BootReport boot",
    "holdfast.recovery.failure_kinds": "AgentFailure",
    "holdfast.recovery.heal": "Healed",
    "holdfast.recovery.health": "Health HealthConcern",
    "holdfast.recovery.procedure": "Procedure RecoveryStep",
    "holdfast.recovery.quarantine": "Quarantined",
    "holdfast.recovery.records": "KeptProcedure RecoveryNotice RecoveryStepResult",
    "holdfast.recovery.recovery": "Recovery",
    "holdfast.recovery.report": "RecoveryPlan RecoveryReport RecoveryStatistics",
    "holdfast.recovery.scrub": "ScrubStatus Scrubbed Scrubber",
    "holdfast.recovery.setup.alerts": "Alert Channel",
    "holdfast.recovery.setup.configuration": "BackupPlace Configuration",
    "holdfast.recovery.setup.managed": "Managed RunningStatus SetUp set_up",
    "holdfast.recovery.setup.supervisor": "PartStatus",
    "holdfast.recovery.strategies": "RecoveryTarget UnfitTarget",
    "holdfast.recovery.watchdog": "AnsweredFailure UnansweredFailure Watchdog",
}
ASYNC = {"holdfast.recovery.setup.managed_async": "set_up"}
__all__ = names_of(HOMES)
__getattr__, __dir__ = lazy(__name__, HOMES, ASYNC)
