"""Plausible mistakes, each one a small patch to a copy of the source, and who must catch it.

The text to replace must occur exactly once; a bug whose text has gone must be written anew.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One mistake: what it is, where, and the check or test file that must fail."""

    name: str
    file: str
    old: str
    new: str
    by: str
    """A check's name, or a test file."""


def caught_by(check: str) -> str:
    """The bugs that a check is seen to catch whenever the seeded bugs are tried."""
    if check == "seeded":
        return f"all {len(BUGS)}, each by the check or test that prove/bugs.py names"
    return "; ".join(bug.name for bug in BUGS if bug.by == check)


BUGS = (
    Bug(
        "nonce from the place alone",
        "seal/sealer.py",
        "+ bound + commitment + _random(16))",
        "+ bound)",
        "tests/seal/test_sealer.py",
    ),
    Bug(
        "place left out of the associated data",
        "store/ledger.py",
        "return self._ad + _BYTE[len(key)] + key",
        "return self._ad",
        "flips",
    ),
    Bug(
        "store left out of the associated data",
        "store/core.py",
        'b"holdfast/ad/1\\0" + self.lineage + bytes(16)',
        'b"holdfast/ad/1\\0" + bytes(16)',
        "flips",
    ),
    Bug(
        "unknown outcome taken for success",
        "store/committer.py",
        "found = self._core.storage.get([key])[0]",
        "found = row",
        "faults",
    ),
    Bug(
        "unknown outcome reported as not applied",
        "store/committer.py",
        "return self._unknown(attempt, batch, feed_row, unknown)",
        'raise Unavailable("nothing was applied") from unknown',
        "faults",
    ),
    Bug(
        "entry visible before its commit",
        "store/committer.py",
        "                storage.commit(batch)\n",
        "                [s.publish(attempt.token) for s in attempt.stages.values()]\n"
        "                storage.commit(batch)\n",
        "faults",
    ),
    Bug(
        "lane taken before its end is known",
        "store/feed.py",
        "        number, last = self.end(lane)",
        "        self._lane = lane\n        number, last = self.end(lane)",
        "faults",
    ),
    Bug(
        "expected versions not compared",
        "store/resting.py",
        "if version(stage, key) != expected]",
        "if False]",
        "forgeries",
    ),
    Bug(
        "saved index believed without its announcement",
        "store/timeline.py",
        "if (body.save[1], body.save[2]) != (kind, hash_):",
        "if False:",
        "forgeries",
    ),
    Bug(
        "missing value reported as a miss",
        "store/reading.py",
        "        value = self.value(timeline, slot, plain)\n        if slot.meta",
        "        try:\n            value = self.value(timeline, slot, plain)\n"
        "        except Exception:\n            return default\n        if slot.meta",
        "flips",
    ),
    Bug(
        "chain link not checked by verify",
        "store/verify_line.py",
        "if line.head and envelope.before != line.head:",
        "if False:",
        "forgeries",
    ),
    Bug(
        "commitment to the body not compared",
        "store/ledger.py",
        "if self.commit_body(plain) != commitment:",
        "if False:",
        "forgeries",
    ),
    Bug(
        "signature not checked",
        "store/verify_line.py",
        "elif not Signer.verify(public, text, statement.signature):",
        "elif False:",
        "forgeries",
    ),
    Bug(
        "feed row omitted",
        "store/committer.py",
        "        batch.puts.append((feed_key, feed_row))\n",
        "",
        "model",
    ),
    Bug(
        "numbers begin anew after a deletion",
        "store/core.py",
        "before = _decode(self.open_row(*found[0]))[2] if found else 0",
        "before = 0",
        "tests/store/test_scopes.py",
    ),
    Bug(
        "a change id taken for another change's",
        "store/outcomes.py",
        "        if self.content and change.content and self.content != change.content:\n",
        "        if False:\n",
        "tests/store/test_changes.py",
    ),
    Bug(
        "change id not recorded",
        "store/committer.py",
        "            self.extra.append((key, seal_outcome(self.core, key, self.ids[tag])))\n",
        "",
        "faults",
    ),
    Bug(
        "restore without a backup",
        "store/history.py",
        "            if damage is None:\n",
        "            if False:\n",
        "model",
    ),
    Bug(
        "restore that mixes states",
        "store/timeline.py",
        "self.rebase(then, {})",
        "self.rebase(then, self.overlay)",
        "model",
    ),
    Bug(
        "list root that depends on how it was built",
        "store/building.py",
        "        if element[5] >= level:\n",
        "        if True:\n",
        "model",
    ),
    Bug(
        "lane conflict ignored",
        "store/committer.py",
        'if any(key[:1] == b"F" for key in keys):',
        "if False:",
        "forgeries",
    ),
    Bug(
        "scope's number derived from its name",
        "store/core.py",
        'number = int.from_bytes(os.urandom(rows.SCOPE), "big")',
        'number = int.from_bytes(tag[: rows.SCOPE], "big")',
        "model",
    ),
    Bug(
        "store put back not noticed in spite of a witness",
        "store/verify.py",
        "if expected is not None and number < expected[0]:",
        "if False:",
        "flips",
    ),
    Bug(
        "log synced at checkpoints only",
        "storage/sqlite_files.py",
        "f\"synchronous={'FULL' if full else 'NORMAL'}\"",
        '"synchronous=NORMAL"',
        "power",
    ),
    Bug(
        "ring less durable than the store",
        "store/opening.py",
        "url, durability=self.durability, create=create, read_only=self.read_only",
        'url, durability="normal", create=create, read_only=self.read_only',
        "power",
    ),
    Bug(
        "log that a killed process left is thrown away",
        "storage/sqlite.py",
        "files.settle_log(self._path, self._on_busy)",
        'os.unlink(self._path + "-wal")',
        "kills",
    ),
    Bug(
        "erased scope's key left in the ring",
        "seal/ring.py",
        "            self.storage.commit(Batch(blanks=found, drops=found))\n",
        "            break\n",
        "tests/store/test_erase.py",
    ),
    Bug(
        "old master retired before every key is wrapped under the new one",
        "seal/turning.py",
        "        _wrap_all(ring, compare=True)\n",
        "        pass\n",
        "tests/seal/test_turning.py",
    ),
    Bug(
        "key that is erased meanwhile wrapped under the new master",
        "seal/turning.py",
        "            batch.present.append(key)",
        "            pass",
        "tests/seal/test_turning.py",
    ),
    Bug(
        "key made for a master that is being retired",
        "seal/ring.py",
        "                cells=[self.unturned()],\n",
        "",
        "tests/seal/test_turning.py",
    ),
    Bug(
        "sealed again whatever is there now",
        "store/rekeying.py",
        "swaps.append((key, row, again))",
        "swaps.append((key, self.storage.get([key])[0] or row, again))",
        "tests/store/test_data_keys.py",
    ),
    Bug(
        "old data key dropped before all is sealed again",
        "store/rekeying.py",
        "    while work.sweep():\n        pass",
        "    if False:\n        pass",
        "tests/store/test_data_keys.py",
    ),
    Bug(
        "fork made under a data key that was rotated",
        "store/history.py",
        "stage.absent += [ended, rekeyed]",
        "stage.absent += [ended]",
        "tests/store/test_data_keys.py",
    ),
    Bug(
        "entry that was sealed again taken for another one",
        "store/entries.py",
        "return one == other or split_row(one)[0].data == split_row(other)[0].data",
        "return one == other",
        "tests/store/test_data_keys.py",
    ),
    Bug(
        "writer not stopped by a tombstone",
        "store/committer.py",
        "                batch.absent.append(ledger.tombstone)\n",
        "                pass\n",
        "tests/store/test_erase.py",
    ),
    Bug(
        "revert overwrites what others changed since",
        "store/reverting.py",
        "            elif since:\n",
        "            elif False:\n",
        "tests/store/test_revert.py",
    ),
    Bug(
        "revert does not expect what it looked at",
        "store/reverting.py",
        "                self.expects[key] = self.now.version("
        "self.handle.reader.live(self.now, key))\n",
        "                pass\n",
        "tests/store/test_revert.py",
    ),
    Bug(
        "blame passes over a deletion",
        "store/blaming.py",
        "return at if found[-1] != entries.DELETE else None",
        "return at if found[-1] != entries.DELETE else (timeline, 1)",
        "tests/store/test_blame.py",
    ),
    Bug(
        "watch that trusts its first look at the lanes",
        "store/tail.py",
        "            self._unsure = fresh\n            if token == self._lanes.token():",
        "            self._unsure = fresh\n            if True:",
        "tests/store/test_watch.py",
    ),
    Bug(
        "position between the entries of a commit taken for its end",
        "store/following.py",
        "if last else place.within(lane, read)",
        "if True else place.within(lane, read)",
        "tests/store/test_watch.py",
    ),
    Bug(
        "watch that holds all that it has to catch up with",
        "store/tail.py",
        "if behind == self._looked[lane] and len(held) < PAGE:",
        "if behind == self._looked[lane]:",
        "tests/store/test_watch.py",
    ),
    Bug(
        "expiry judged by a clock that jumps",
        "store/clock.py",
        "        if wall - passed > self._believed + STEP:\n",
        "        if False:\n",
        "tests/store/test_expiry.py",
    ),
    Bug(
        "a view judges expiry by today",
        "store/reading.py",
        "        if self.at is None:\n            return self.core.clock.checked()\n",
        "        if True:\n            return self.core.clock.checked()\n",
        "tests/store/test_expiry.py",
    ),
    Bug(
        "a sweep removes what was renewed since it looked",
        "store/expiring.py",
        "if slot is not None and slot.over(stage.now) else []",
        "if slot is not None else []",
        "tests/store/test_expiry.py",
    ),
    Bug(
        "a diff shows what is sensitive",
        "store/differing.py",
        "if after.masks(new, key, slots, reveal=reveal):",
        "if False:",
        "tests/store/test_classes.py",
    ),
    Bug(
        "what is sensitive is compressed",
        "store/stage.py",
        "packer.quiet |= class_ == SENSITIVE",
        "packer.quiet |= False",
        "tests/store/test_classes.py",
    ),
    Bug(
        "decompression not bounded",
        "seal/compress.py",
        "elif plain_length > min(MAX_PLAIN, _MOST[method] * (len(data) + 1)):",
        "elif False:",
        "tests/seal/test_compress.py",
    ),
    Bug(
        "use after os.fork() allowed",
        "storage/sqlite.py",
        "        if self._pid != os.getpid():\n            raise StoreForkedError(",
        "        if False:\n            raise StoreForkedError(",
        "tests/storage",
    ),
    Bug(
        "a lease not expected by the changes made under it",
        "store/committer.py",
        "batch.cells = [(key, cell, cell) for key, cell in self.cells.items()]",
        "batch.cells = []",
        "tests/store/test_leases.py",
    ),
    Bug(
        "a lease taken over without seeing it unchanged for its duration",
        "store/leasing.py",
        "return seen[1] <= latest",
        "return True",
        "tests/store/test_leases_model.py",
    ),
    Bug(
        "a beat since the look not noticed when a lease is taken over",
        "store/leasing.py",
        "[(key, cells[0], cell), (rows.beat(key), cells[1], beat)]",
        "[(key, cells[0], cell)]",
        "tests/store/test_leases.py",
    ),
    Bug(
        "the unknown outcome of taking a lease taken for another's",
        "store/leasing.py",
        "return unknown is not None and dict(",
        "return False and dict(",
        "tests/store/test_leases.py",
    ),
    Bug(
        "each fork of a group saving the same nodes once more",
        "store/forking.py",
        "return unsaved and made is not None and bool(made.lines)",
        "return False",
        "tests/store/test_forks_together.py",
    ),
)
