"""The command line: `holdfast NOUN VERB`.

- **Command** (`command`): a click command that takes the global options in any place. Those that
  there are lie in `commands`, by their nouns; `main` has the table of them.
- **Usage line** (`command`): `get SCOPE KEY=name --at --reveal` declares arguments, and
  the options that several commands take.
- **Session** (`session`): the global options, the store that they open, and how commands answer:
  `tell`, `table` and `fields` print a result as JSON (`plain`) or for people (`output`).
- **Point** (`session`): an entry's number, TIMELINE@NUMBER, a time, or a checkpoint's name.
- **Failure** (`failures`): an error as one line and an exit code.

A module of commands is imported when one of them is used, so it may import what it works with. The
modules named here, which every command needs, import the store and rich in functions: most of the
time of a short command is its start.
"""
