"""What is shown in place of a value of class sensitive."""

from __future__ import annotations


class Masked:
    """Stands for a value of class sensitive where it is not to be shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<sensitive>"


MASK = Masked()
