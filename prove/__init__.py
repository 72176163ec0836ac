"""The proof harness: it crashes, damages and races real stores and checks every promise.

`python prove/run.py` runs all checks and prints one table. Each check is a module with
`run(seed, scale) -> Result` and the name of the mistakes that it is known to catch:

- `power`: power loss at every moment of a recorded run;
- `faults`: every storage call fails once, from there on, and ambiguously;
- `flips`: every stored row flipped, dropped, swapped, replayed;
- `kills`: kill -9 while several processes write;
- `model`: a hypothesis state machine against a plain model;
- `seeded`: known mistakes, patched into a copy, are caught by the checks above and the tests.

All of it works on files in temporary folders and ends only processes that it started.
"""
