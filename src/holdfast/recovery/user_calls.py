"""Functions of users, which may be async."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

log = logging.getLogger("holdfast.recovery")


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives; that of an async one is waited for, in a loop of its own."""
    answer = function(*arguments)
    if not inspect.isawaitable(answer):
        return answer
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_awaited(answer))
    with ThreadPoolExecutor(1) as pool:  # the loop of this thread waits as for any blocking call
        return pool.submit(copy_context().run, asyncio.run, _awaited(answer)).result()


async def _awaited(answer: Any) -> Any:
    return await answer
