"""Names that records refer to by number: no number ever stands for two of them."""

from __future__ import annotations

from holdfast import sync
from holdfast.integrations.langgraph.put import put, put_writes
from holdfast.integrations.langgraph.thread import Thread
from holdfast.integrations.langgraph.thread_records import Names, Space
from holdfast.integrations.langgraph.types import Types
from holdfast.integrations.langgraph.write_queue import Job

SPACE = Space("")


def checkpoint(number: int, **values: object) -> dict[str, object]:
    return {"v": 4, "id": f"{number:08}", "ts": "", "channel_values": values}


def test_writes_and_a_checkpoint_in_one_change_bring_new_names_each() -> None:
    """They come together whenever a task and the checkpoint after it are handed over at once."""
    with sync.open("memory:") as store:
        thread = Thread(store._core, "t", Types())
        jobs: list[Job] = []
        thread.turns.run = jobs.append  # type: ignore[method-assign]
        put_writes(thread, SPACE, "00000001", [(0, "first", 1)], "task", "", None)
        put(thread, SPACE, checkpoint(1, second=2), {}, None, lambda _: None)
        thread.turns._together(jobs)

        again = Thread(store._core, "t", Types())
        loaded = again.newest(SPACE, writes=True)
        assert loaded is not None
        assert loaded.record.values == {"second": 2}
        assert again.pending(loaded) == [("task", "first", 1)]


def test_a_number_that_another_process_took_first_is_given_up() -> None:
    mine = Names()
    mine.learn(["a"])
    assert mine.short("mine") == 1
    mine.learn(["a", "theirs"])
    mine.begin()
    assert mine.short("mine") == 2
    assert mine.new == ["mine"]


def test_reading_does_not_disturb_a_change_that_is_being_put_together() -> None:
    names = Names()
    names.learn(["a"])
    names.short("b")
    names.learn(["a"])
    assert names.new == ["b"]
    assert names.short("c") == 2
