"""State machines whose state, data and past are kept in an agent's scope.

- **Definition**: states, the **arrows** between them (a **trigger** leads along an arrow), rules,
  prompts (`definition`; drawn: `draw`).
- **Snapshot**, **transition**, **intent**: what is kept: where a machine is, what was tried, what
  was begun (`machine_records`).
- **Step**: one transition on its way: what guards and actions are given (`machine_records`).
- **Machine**: what it does, and its past (`machine`, on the steps of `transition`).
"""
