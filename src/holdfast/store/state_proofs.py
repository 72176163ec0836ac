"""What a store proves, on the blocking face; proofs are loaded when they are first used."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.store.names.arguments import check_filters, check_flag, check_function, check_seconds
from holdfast.store.proof.witness import make_witness, store_identity, store_stats

if TYPE_CHECKING:
    from holdfast.store.commit.meter import Metrics
    from holdfast.store.history.handle import LineHandle, StoreHandle
    from holdfast.store.names.items import Checkpoint
    from holdfast.store.names.scope import Scope
    from holdfast.store.proof.proof_files import Proof
    from holdfast.store.proof.verify_report import Report
    from holdfast.store.state import State


class StateProving:
    """What a state can show to somebody who has neither the store nor its keys."""

    _handle: LineHandle

    def prove(self, key: str, *, at: Any = None) -> Proof:
        """A proof of what a key was, or that it was absent, at a checkpoint.

        Without `at` it is the newest one in the present state's past, which what a restore has
        left behind is not. `holdfast-verify` checks it, without the store and without a key.
        Whoever has it can read the value, the checkpoint's name, time and cause, and what
        `Proof.reveals` names. A value of more than 1 MiB is refused.
        """
        from holdfast.store.proof.prove import prove_key

        return prove_key(self._handle, key, at)

    def export_chain(self, path: str | os.PathLike[str], *, feed: bool = False) -> int:
        """Write the timeline's chain to a file: envelopes and signatures, no content.

        `holdfast-verify` checks it without a key. With `feed` it also holds the rows of all lanes
        of the store (numbers and hashes, some 80 bytes a commit), so that a witness can be compared
        with it, and what the timeline itself tells of entries that it lost. Returns the number of
        entries.
        """
        from holdfast.store.proof.prove import export_chain

        return export_chain(self._handle, path, feed)

    def cosign(self, checkpoint: Any, *, signer: str, verify: str = "full") -> Checkpoint:
        """Add a signature to a checkpoint: yours, who looked at the state and vouch for it.

        The state is checked first, as `restore` does. `signer` is `file:PATH`. The checkpoint's
        own bytes and hash stay; `verify(trust=[…], require=…)` counts the signatures.
        """
        from holdfast.store.proof.cosign import cosign

        return cosign(self._handle, checkpoint, signer, verify)


class StoreProving:
    """What a store can show about itself."""

    _handle: StoreHandle

    def identity(self) -> str:
        """What to pin elsewhere: which store this is, whether encrypted, and who signs for it."""
        return store_identity(self._handle.core)

    def witness(self) -> str:
        """A small signed token over all that is in the store now. Keep it elsewhere."""
        return make_witness(self._handle.core)

    def verify(
        self,
        scope: Scope | str | State | None = None,
        *,
        expect: str | None = None,
        identity: str | None = None,
        trust: Sequence[str] = (),
        require: int | None = None,
        budget: float | None = None,
        resume: str | None = None,
        parallel: bool = False,
        progress: Callable[[str, int], None] | None = None,
    ) -> Report:
        """Check everything that is stored, of one scope or of all; returns a report.

        `expect` takes a witness, `identity` what `identity()` gave. With `trust`, public keys, each
        checkpoint must be signed by `require` (1) of them. With a `budget` in seconds it
        stops when that is used up, and `resume=report.resume` goes on: between two entries, so
        that one entry with all its values is the least that a call does. What is not divided
        comes on top: the feed and the directory, which every call reads, what is kept below a
        pruned timeline's floor, long values that were written in pieces, and at the end rows that
        nothing accounts for, and the engine's own check. With `parallel`, a second
        Python process helps with scopes of over 50,000 entries in a SQLite file; it is given the
        keys of the scope through a pipe, and needs some 100 MB. A budget goes without.
        """
        from holdfast.store.proof.verify import (
            verify_store,  # a program that only reads starts sooner
        )

        check_filters(expect=expect, identity=identity, resume=resume)
        check_seconds(budget, "budget")
        check_flag(parallel, "parallel")
        if progress is not None:
            check_function(progress, "progress")
        return verify_store(
            self._handle.core,
            self._handle.of(scope).scope if scope is not None else None,
            expect=expect,
            identity=identity,
            trust=trust,
            require=require,
            budget=budget,
            resume=resume,
            parallel=parallel,
            progress=progress,
        )

    def stats(self) -> dict[str, Any]:
        """Figures of the store: scopes, entries, bytes, caches."""
        return store_stats(self._handle.core)

    def metrics(self) -> Metrics:
        """What was counted and timed since this store was opened, in this process."""
        return self._handle.core.meter.read()
