"""Who may reach what, and who did, above the store: made from a Store, no methods of it.

Glossary of this layer:

- **Audit**: a note of each read of a sensitive value (`audit`), in the **system scope**
  `custom:$audit`, which is journalled, sealed, chained and witnessed like any other. A note holds
  numbers and tags; the names are found when the audit is read (`audit_names`).

Import the modules themselves; this package re-exports nothing.
"""
