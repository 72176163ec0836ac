"""State machines whose state, data and past are kept in an agent's scope.

- **Definition**: states, the **arrows** between them (a **trigger** leads along an arrow), rules,
  prompts (`definition`; drawn: `draw`).
- **Snapshot**, **transition**, **intent**: what is kept: where a machine is, what was tried, what
  was begun (`machine_records`).
- **Step**: one transition on its way: what guards and actions are given (`drive`).
- **Routines**: what a machine does, as generators that ask for reads, calls and commits
  (`routines`, on `machine_records`; `log` for the past); `machine` carries out what they ask for
  (`drive`).
"""
