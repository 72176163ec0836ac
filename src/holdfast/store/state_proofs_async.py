"""Proofs and exported chains on the async face."""

from __future__ import annotations

import os
from typing import Any

from holdfast.store.history.handle import LineHandle
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.threads import read_away, to_the_end
from holdfast.store.proof.cosign import cosign
from holdfast.store.proof.proof_files import Proof
from holdfast.store.proof.prove import export_chain, prove_key


class StateProving:
    """What a state can show to somebody who has neither the store nor its keys."""

    _handle: LineHandle

    async def prove(self, key: str, *, at: Any = None) -> Proof:
        """A proof of what a key was, or that it was absent, at a checkpoint.

        Without `at` it is the newest one in the present state's past, which what a restore has
        left behind is not. `holdfast-verify` checks it, without the store and without a key.
        Whoever has it can read the value, the checkpoint's name, time and cause, and what
        `Proof.reveals` names. A value of more than 1 MiB is refused.
        """
        return await read_away(prove_key, self._handle, key, at)

    async def export_chain(self, path: str | os.PathLike[str], *, feed: bool = False) -> int:
        """Write the timeline's chain to a file: envelopes and signatures, no content.

        `holdfast-verify` checks it without a key. With `feed` it also holds the rows of all lanes
        of the store (numbers and hashes, some 80 bytes a commit), so that a witness can be compared
        with it, and what the timeline itself tells of entries that it lost. Returns the number of
        entries.
        """
        return await to_the_end(export_chain, self._handle, path, feed)

    async def cosign(self, checkpoint: Any, *, signer: str, verify: str = "full") -> Checkpoint:
        """Add a signature to a checkpoint: yours, who looked at the state and vouch for it.

        The state is checked first, as `restore` does. `signer` is `file:PATH`. The checkpoint's
        own bytes and hash stay; `verify(trust=[…], require=…)` counts the signatures.
        """
        return await to_the_end(cosign, self._handle, checkpoint, signer, verify)
