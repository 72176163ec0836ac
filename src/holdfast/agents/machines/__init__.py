"""State machines whose state, data and past are kept in an agent's scope.

- **Definition**: states, the **arrows** between them (a **trigger** leads along an arrow), rules,
  prompts (`definition`; drawn: `draw`).
- **Snapshot**, **transition**, **intent**: what is kept: where a machine is, what was tried, what
  was begun (`machine_records`).
- **Step**: one transition on its way: what guards and actions are given (`machine_records`).
- **Routines**: what a machine does, in steps of both faces (`routines`; `log`: the past).
"""
