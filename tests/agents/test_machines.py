"""State machines: what a trigger does, what is refused, and what is kept of it."""

from __future__ import annotations

from machine_kit import HAIKU
from store_kit import Place

from holdfast import sync


def test_a_machine_goes_its_way_and_is_there_after_a_restart(place: Place) -> None:
    machine = sync.Machine(place.open().agent("poet"), HAIKU)
    assert machine.now() is None
    made = machine.fire("topic", topic="rain")
    way = (made.from_state, made.to_state, made.trigger)
    assert way == ("awaiting_topic", "generating", "topic")
    now = machine.now()
    assert now is not None
    assert (now.state, now.data, now.version) == ("generating", {"lines": [], "topic": "rain"}, 2)
    assert now.prompt == "A haiku about rain …"

    machine = sync.Machine(place.reopen().agent("poet"), HAIKU)
    assert machine.now() == now
    machine.fire("done")
    machine.fire("no")
    log = machine.transitions()
    assert [(one.number, one.kind, one.to_state, one.version) for one in log] == [
        (1, "start", "awaiting_topic", 1),
        (2, "step", "generating", 2),
        (3, "step", "complete", 3),
        (4, "step", "goodbye", 4),
    ]
    assert machine.validate() == ()
