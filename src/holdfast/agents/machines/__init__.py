"""State machines whose state, data and past are kept in an agent's scope.

- **Definition**: states, the **arrows** between them (a **trigger** leads along an arrow), rules,
  prompts (`definition`, `rules`; drawn: `drawing`, `svg`).
- **Snapshot**, **transition**, **intent**: what is kept: where a machine is, what was tried, what
  was begun (`records`).
- **Step**: one transition on its way: what guards and actions are given (`steps`).
- **Routines**: what a machine does, as generators that ask for reads, calls and commits
  (`routines`, on `looking` and `storing`; `settling` for what was interrupted, `versions` for the
  past); the faces (`blocking`, `async_machine`) carry out what they ask for (`driving`).
"""
