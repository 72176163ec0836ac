"""A small fleet that may be killed at any moment: started again, nothing is lost, doubled or stuck.

    python examples/daemon.py [URL]

Twenty agents are spawned, each is observed by its neighbour and asked for three things. What an
agent does is written with its answer. It ends when all is answered, and says what it found.
"""

from __future__ import annotations

import asyncio
import sys

import holdfast
from holdfast.agents import RetryPolicy
from holdfast.runtime import Bus, Entities, Events, Observations, Queue, Request, Requests, Runtime

AGENTS, TASKS = 20, 3


class Fleet:
    """Agents, who observes whom, and what they are asked: a module of a daemon."""

    def __init__(self, store: holdfast.Store) -> None:
        self.bus = Bus()
        self.store = store
        self.entities = Entities(store.custom("fleet"))
        self.log = Events(store)
        self.observations = Observations(self.entities, self.log)
        self.requests = Requests(store, self.work, retry=RetryPolicy(max_attempts=20, delay=0.05))
        self.done = Queue(store.custom("fleet"), "done")

    async def work(self, request: Request) -> str:
        """What an agent does when it is asked: what it writes and its answer are one commit."""
        self.log.emit("task:begun", {"agent_id": request.session, "task": request.id})
        await asyncio.sleep(0.002)
        request.change.append("done", request.id)
        await self.bus.publish("task:done", request.id)
        return f"{request.session} did {request.id}"

    async def ready(self) -> None:
        """Make what is not there yet; all of it may have been made before."""
        names = [f"agent-{number:02}" for number in range(AGENTS)]
        for name in names:
            if not await self.entities.exists(name):
                await self.entities.create("agent", {"tasks": TASKS}, id=name)
        observed = {one["target"] for one in await self.observations.list()}
        for name, other in zip(names, names[1:] + names[:1], strict=True):
            if other not in observed:
                await self.observations.subscribe(name, other, "task:*")
        for name in names:
            for number in range(TASKS):
                await self.requests.submit(name, number, id=f"{name}-task-{number}")

    async def finished(self) -> None:
        """Wait until all is answered, and say so once for each agent."""
        for entity in (await self.entities.query("agent")).items:
            for number in range(TASKS):
                await self.requests.result(f"{entity.id}/{entity.id}-task-{number}", timeout=60)
            if "done" not in entity.properties:
                # Killed between the two, the next life finds it in the queue: nobody takes from it.
                if entity.id not in await self.done.items():
                    await self.done.push(entity.id, ttl=None)
                await self.entities.update(entity, {"done": True})


async def main(url: str) -> None:
    """One life of the daemon."""
    async with holdfast.open(url) as store:
        fleet = Fleet(store)
        modules = [fleet.entities, fleet.log, fleet.observations, fleet.requests, fleet]
        async with Runtime(store, modules):
            print("ready", flush=True)
            await fleet.finished()
            work = [await store.session(f"agent-{n:02}").get("done") for n in range(AGENTS)]
            print(f"{await fleet.entities.count('agent')} agents,", end=" ")
            print(f"{sum(map(len, work))} tasks done,", end=" ")
            print(f"{len(await fleet.observations.list())} observations", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:daemon.db"))
