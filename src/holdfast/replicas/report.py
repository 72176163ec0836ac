"""What is said of replicas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SyncedReplica:
    """What a sync did to one replica."""

    url: str
    """Without a password."""
    made: bool
    """Whether it was copied whole: it is new, or was made anew."""
    rows: int
    """That were written."""
    removed: int
    """Rows that were dropped: what was pruned or erased in the store."""
    bytes: int
    findings: tuple[str, ...]
    """What is damaged, here or there, and was left as it is."""
    error: str | None
    """Why it is not up to date, if it is not."""

    @property
    def ok(self) -> bool:
        """Whether it holds all that the store held when the sync began, and nothing is damaged."""
        return self.error is None and not self.findings

    def __str__(self) -> str:
        said = self.error or f"{self.rows} rows written, {self.removed} removed"
        return "\n".join([f"{self.url}: {said}", *(f"  {one}" for one in self.findings)])


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did."""

    replicas: tuple[SyncedReplica, ...]

    @property
    def ok(self) -> bool:
        """Whether all replicas hold all that the store held when the sync began."""
        return all(one.ok for one in self.replicas)

    def __str__(self) -> str:
        return "\n".join(str(one) for one in self.replicas)


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """How a replica is."""

    url: str
    """Without a password."""
    whole: bool
    """Whether it is a store that can be opened and promoted."""
    entries: int | None
    """That the store has and it has not, 100,000 at most; None if that is not known."""
    seconds: float | None
    """Since the oldest of them was written, by the writer's clock; 0 if there are none."""
    error: str | None
    """Why it cannot be told, or why the last sync of this process did not bring it up to date."""

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.url}: {self.error}"
        if not self.whole:
            return f"{self.url}: not made yet"
        if not self.entries:
            return f"{self.url}: up to date"
        return f"{self.url}: {self.entries} entries behind, for {self.seconds or 0:.1f} s"
