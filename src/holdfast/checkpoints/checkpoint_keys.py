"""Keys that this layer owns in a scope, and what becomes of them (`Owned`).

    $retention/KIND/ID     a mark on a checkpoint: pinned, on hold, or to be restarted from
    $shutdown/collected    what was collected as a process ended, until it is given back
    $policy/ID             a policy of the scope

Marks and what was collected stay in every restore, whatever is declared: nobody lifts a hold by
going back, and who has been given what was collected has it. A policy is state: it goes back with
the rest, and a checkpoint covers it.

What each operation does with them, in short:

    restore, undo of an operation    marks and what was collected stay, policies go back
    revert                           marks stay, but for those of restarts; the rest goes back
    merge                            marks and what was collected are left, policies merge
    another scope's state            brings neither policies nor restarts
    another store                    what was collected comes along
    prune, deletion of the scope     marked checkpoints stay, and a hold refuses the deletion
"""

from __future__ import annotations

from holdfast.store.inner import Owned

# ---- marks --------------------------------------------------------------------------------------
# Marks are keys of the main timeline; `Retention` puts them there and takes them back. They name
# checkpoints of their scope, and the key ends with the checkpoint's id. Nobody prunes what is
# marked (`store.upkeep.holds`), and no scope with a hold is deleted, or erased unless that is said.

MARKS = Owned(
    "$retention/",
    restore=Owned.ALWAYS,
    revert=Owned.NEVER,
    why="it is a mark, which stays: `Retention.unpin` and `Retention.lift` take it back",
    marks=True,
)

RESTARTS = MARKS.part("restart/", revert=Owned.BACK, why="", copy=Owned.NOWHERE)
"""Checkpoints from which agents are to be started again, until that is done.

Who undoes what asked for a restart undoes the mark with it. It is about a checkpoint of just this
scope, so no copy of the state has it: neither another scope, nor this one in another store.
"""

# ---- participants -------------------------------------------------------------------------------

COLLECTED = Owned("$shutdown/", restore=Owned.ALWAYS, copy=Owned.MOVES)
"""What participants held in memory as a process ended, until it is given back to them.

That is done once, so neither going back nor another state that is taken over brings it again. Only
where the whole scope moves to another store does it come along: nobody there has been given it.
"""

# ---- policies -----------------------------------------------------------------------------------

POLICIES = Owned("$policy/", copy=Owned.SCOPE)
"""When checkpoints of the scope are made by themselves, a policy each.

Each agent has its own: another one that takes over its state keeps the policies that it has.
"""
