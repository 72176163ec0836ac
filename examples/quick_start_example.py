"""Keep an agent's state in a file, make a checkpoint, go wrong, go back."""

from __future__ import annotations

import asyncio
import tempfile

import holdfast


async def main(folder: str) -> None:
    async with holdfast.open(f"sqlite:{folder}/agents.db") as store:
        state = store.agent("researcher-7")
        await state.set("plan", {"goal": "ship", "step": 3})
        await state.append("conversation", {"role": "user", "content": "hello"})

        safe = await state.checkpoint("before deploy", type="pre_operation", tags=["deploy"])
        await state.set("plan", {"goal": "sell seashells"})
        await state.delete("conversation")
        print(await state.diff(safe))

        result = await state.restore(safe, reason="that went wrong")
        assert await state.get("plan") == {"goal": "ship", "step": 3}
        print("restored", result.point, "verified", result.verified)
        print("undo with", result.backup.id if result.backup else None)

    # Another process would see the same; so does the next one.
    async with holdfast.open(f"sqlite:{folder}/agents.db", create=False) as store:
        state = store.agent("researcher-7")
        assert await state.tail("conversation", 1) == [{"role": "user", "content": "hello"}]
        report = await store.verify()
        assert report.ok
        print(report)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
