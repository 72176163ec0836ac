"""Hand a task from one agent to another: in both scopes, or in none, and only once."""

from __future__ import annotations

import asyncio

import holdfast
from holdfast.errors import Conflict


async def hand_over(store: holdfast.Store, giver: str, taker: str, id: str) -> None:
    """One entry in each scope, in one commit. What it reads, it expects."""
    a, b = store.agent(giver), store.agent(taker)
    async with store.change(id=id, reason="handover") as change:
        task = await change[a].get("task")
        change[a].delete("task")
        change[b].set("task", task)


async def main() -> None:
    async with holdfast.open("memory:") as store:
        ada, bob = store.agent("ada"), store.agent("bob")
        await ada.set("task", {"title": "write the report"})

        with store.acting("coordinator", correlation="run-42"):
            await hand_over(store, "ada", "bob", id="handover-17")
            # The answer got lost and it is sent again: nothing happens a second time.
            await hand_over(store, "ada", "bob", id="handover-17")

        assert not await ada.exists("task")
        assert await bob.get("task") == {"title": "write the report"}
        assert len(await bob.log()) == 1

        # Somebody takes the task away while a change rests on it.
        try:
            async with store.change() as change:
                task = await change[bob].get("task")
                await bob.set("task", {"title": "something else"})
                change[ada].set("task", task)
        except Conflict as conflict:
            print("nothing was applied:", conflict)
        assert not await ada.exists("task")

        for entry in await store.correlated("run-42"):
            print(entry.scope, entry.operations, entry.cause.actor, "also in", entry.also)


asyncio.run(main())
