"""The heart: scoped state whose every version is kept.

A scope's state is the fold of its journal. Values are written once and never changed. An
index of references says which values are current.

- **Scope** (`names.scope`): a namespace, a plain value that parses from text and back.
- **Row** (`names.rowkinds`): the key of a record in storage; numbers only, never names.
- **Entry** (`journal.entry`): one atomic change of a timeline, a clear envelope around a sealed
  body.
- **Ref** (`tree.refs`): what a value is; **hint**: where it lies. **Tree** (`tree.tree`): all that
  is long.
- **Atom** (`tree.value`): the encoded bytes of a value, or of a part of a long one.
- **Directory** (`journal.directory`): the scopes of an open store, opened when they are asked for;
  **Core** (`commit.group`) is that with all that changes them.
- **Ledger** (`journal.ledger`): one scope, opened: its keys, its trees, its records.
- **Timeline** (`journal.timeline`): one line of a scope's history as it is held in memory: the
  newest folded index and an overlay of the changes since.
- **Change** (`commit.change`): what a caller asks for; the entry is what became of it.
- **Committer** (`commit.group`): puts all changes waiting at one moment into one storage
  commit.
- **Tagged JSON** (`tree.json_values`): values that plain JSON would change, so that they come back.
- **Gate** (`rules.gates`): what stands in front of and behind every change.
- **Owned** (`rules.owned`): which keys a feature has, and what becomes of them: the one table that
  restore, merge, revert, copies, prune and recovery read. The store itself knows no feature.
- **Book** (`store.book`): the records of a feature in one state, read and written by steps.
- **Reason** (`rules.hold_reasons`): why something is kept; **need** (`upkeep.holds`): what is kept
  so, asked for by all that remove.
- **Meter** (`names.meter`): what an open store counts and times.
- **Feed** (`journal.feed`): which entries were committed, in lanes, gap-free.

Imports point down, types included: names, tree, journal, lease, rules, commit, read, history, long,
upkeep, proof, and on top what lies beside this file.
"""
