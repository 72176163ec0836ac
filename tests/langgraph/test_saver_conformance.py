"""LangGraph's own conformance suite for savers: every case, none skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from holdfast.integrations.langgraph import HoldfastSaver

OpenSaver = Callable[[], AbstractAsyncContextManager[HoldfastSaver]]
SaverTest = Callable[[HoldfastSaver], Coroutine[Any, Any, None]]

EXPECTED = 81
"""So many cases the pinned release has; one that vanishes must not go unnoticed."""


def cases() -> list[SaverTest]:
    found = []
    for capability in Capability:
        module = import_module(f"langgraph.checkpoint.conformance.spec.test_{capability.value}")
        found += getattr(module, f"ALL_{capability.value.upper()}_TESTS")
    return found


def test_the_suite_has_as_many_cases_as_we_count() -> None:
    assert len(cases()) == len({case.__name__ for case in cases()}) == EXPECTED


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.__name__.removeprefix("test_"))
def test_case(case: SaverTest, with_saver: Callable[[SaverTest], None]) -> None:
    with_saver(case)


def test_the_report_is_full_and_nothing_is_skipped(open_saver: OpenSaver) -> None:
    @checkpointer_test(name="HoldfastSaver")
    async def savers() -> AsyncIterator[HoldfastSaver]:
        async with open_saver() as saver:
            yield saver

    results: dict[str, Any] = asyncio.run(validate(savers)).results
    assert results.keys() == {capability.value for capability in Capability}
    assert {name: result.failures for name, result in results.items() if result.failures} == {}
    assert all(result.detected and result.passed for result in results.values())
    assert sum(result.tests_skipped for result in results.values()) == 0
    assert sum(result.tests_passed for result in results.values()) == EXPECTED
