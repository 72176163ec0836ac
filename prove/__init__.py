"""The proof harness: it crashes, damages and races real stores and checks every promise.

`python prove/run.py` runs all checks and prints one table. Each check is a module with
`run(seed, scale) -> Result`; `bugs` lists the mistakes that each is seen to catch:

- `power`: power loss at every moment of a recorded run;
- `faults`: every storage call fails once, from there on, and ambiguously;
- `flips`: every stored row flipped, dropped, swapped, replayed;
- `pages`: bits of what SQLite itself keeps around the rows flipped;
- `forgeries`: rows made by somebody who knows the format, races of two handles;
- `kills`: kill -9 while several processes write;
- `model`: a hypothesis state machine against a plain model;
- `recoveries`: mishaps at every step of every recovery, and a fleet of agents that fail (`fleet`);
- `seeded`: known mistakes, patched into a copy, are caught by the checks above and the tests.

All of it works on files in temporary folders and ends only processes that it started.
"""
