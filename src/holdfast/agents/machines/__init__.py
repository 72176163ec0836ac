"""State machines whose state, data and past are kept in an agent's scope.

- **Definition**: states, the **arrows** between them (a **trigger** leads along an arrow), rules,
  prompts (`definition`, `rules`; drawn: `draw`, `svg`).
- **Snapshot**, **transition**, **intent**: what is kept: where a machine is, what was tried, what
  was begun (`records`).
- **Step**: one transition on its way: what guards and actions are given (`step`).
- **Routines**: what a machine does, as generators that ask for reads, calls and commits
  (`routines`, on `record_reader` and `record_changes`; `interrupted` for what was interrupted,
  `log` for the past); the faces (`machine`, `machine_async`) carry out what they ask for (`drive`).
"""
