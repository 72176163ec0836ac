"""What the conformance suite says of an engine."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Report:
    """What the suite found."""

    passed: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """(name, reason)"""

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return not self.failed

    def __str__(self) -> str:
        rows = [(name, "ok", "") for name in self.passed]
        rows += [(name, "FAILED", reason) for name, reason in self.failed]
        width = max((len(name) for name, _, _ in rows), default=0)
        lines = [
            f"{name:<{width}}  {result:<6}  {reason}".rstrip() for name, result, reason in rows
        ]
        return "\n".join([*lines, f"{len(self.passed)} passed, {len(self.failed)} failed"])
