"""Machines to test with."""

from __future__ import annotations

from holdfast.agents import MachineArrow, MachineDefinition, MachineRule, MachineState

HAIKU = MachineDefinition(
    initial="awaiting_topic",
    states={
        "awaiting_topic": MachineState(
            prompt="What shall it be about?",
            on={
                "topic": MachineArrow(
                    "generating",
                    keep=("topic",),
                    accepts=(
                        MachineRule(
                            "topic",
                            pattern=r"\w[\w ]{0,40}",
                            required=True,
                            message="say it in a few words",
                        ),
                    ),
                )
            },
        ),
        "generating": MachineState(
            prompt="A haiku about $topic …", data={"lines": []}, on={"done": "complete"}
        ),
        "complete": MachineState(
            prompt="Another one?", on={"yes": "awaiting_topic", "no": "goodbye"}
        ),
        "goodbye": MachineState(),
    },
)
"""The machine of the HaikuAgent."""
