"""From any failure back to work: by procedure, one at a time for each agent, with evidence.

Glossary of this layer:

- **Failure**: what went wrong with an agent, as data: a kind, how grave it is, what is known
  (`failures`).
- **Procedure**: the steps that answer a failure, as data (`procedure`, `builtin_procedures`): what
  is done, in which order, how long it may take, what is checked at the end, how it is undone.
- **Step type**: what one step does (`steps`); users register their own.
- **Strategy**: one way to a good state (`strategies`); they are tried in an order until one serves.
- **Recovery**: a procedure at work on one agent, under a lease (`run`, `recovery`). What it did
  is kept in a scope of its own (`records`): one that is killed goes on, or is rolled back.
- **Finding failure**: a watchdog over agents that run (`watchdog`, `watchdog_beats`; what it found
  is kept in `sightings`), boot recovery of what was unfinished (`boot`), and a scrubber (`scrub`)
  that heals rows from copies (`heal`).
- **Report**: what was found, tried, done and lost (`report`), under a checkpoint, which is
  signed if the signer is there; also as a page (`report_page`).
- **Configuration**: how an agent's state is to be kept, as one document (`setup.configuration`);
  setting it up (`setup.managed`) says what is in force.
- **Health**: how well a store is, with reasons and next steps (`health`, `setup.placement`).

Import the modules themselves; this package re-exports nothing.
"""
