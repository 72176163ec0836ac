"""The command line: `holdfast NOUN VERB`.

- **Command** (`commands`): a click command that takes the global options in any place.
- **Session** (`session`): the global options, and the store that they open.
- **Out** (`output`): tables and colours for people, plain text in a pipe, JSON for programs.
- **Point** (`points`): an entry's number, TIMELINE@NUMBER, a time, or a checkpoint's name.
- **Failure** (`failures`): an error as one line and an exit code.

Modules that take long to import (the store, rich) are imported by the functions that need them:
most of the time of a short command is its start.
"""
