"""The command line: `holdfast NOUN VERB`.

- **Command** (`commands`): a click command that takes the global options in any place.
- **Option** (`options`): what several commands take, declared once.
- **Session** (`session`): the global options, the store that they open, and how commands answer:
  `tell`, `table` and `fields` print a result as JSON (`plain`) or for people (`output`).
- **Point** (`session`): an entry's number, TIMELINE@NUMBER, a time, or a checkpoint's name.
- **Failure** (`failures`): an error as one line and an exit code.

Modules that take long to import (the store, rich) are imported by the functions that need them:
most of the time of a short command is its start.
"""
