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
        "store/expecting.py",
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
        "        value = self.value(timeline, slot, plain)\n        return convert",
        "        try:\n            value = self.value(timeline, slot, plain)\n"
        "        except Exception:\n            return default\n        return convert",
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
        "store/cosigning.py",
        "if Signer.verify(public, text, statement.signature):",
        "if True:",
        "forgeries",
    ),
    Bug(
        "proof made of a state that is not the signed one",
        "store/proving.py",
        "if root.hash != statement.root:",
        "if False:",
        "tests/store/test_proofs.py",
    ),
    Bug(
        "path of a proof not compared with the root",
        "../holdfast_verify.py",
        'need(committed(b"node", data, opening) == root, "the path',
        'need(data, "the path',
        "tests/store/test_proofs.py",
    ),
    Bug(
        "signatures that must be there left out of what is signed",
        "store/cosigning.py",
        '(b"holdfast/cosign/1\\0", ledger.prefix, key, hash_, public)',
        '(b"holdfast/cosign/1\\0", ledger.prefix, key, bytes(32), public)',
        "tests/store/test_cosigning.py",
    ),
    Bug(
        "second signature of a hybrid signer not called for",
        "store/cosigning.py",
        "elif algorithm == entries.HYBRID and public not in valid:",
        "elif False:",
        "tests/store/test_cosigning.py",
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
        "verify takes what was written meanwhile for damage",
        "store/verify_feed.py",
        """        self.catch_up()
        return self._heads.get((scope, timeline), (0, b""))[0]
""",
        """        return self._heads.get((scope, timeline), (0, b""))[0]
""",
        "tests/store/test_verify.py",
    ),
    Bug(
        "store put back not noticed in spite of a witness",
        "store/verify_feed.py",
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
        "                self.expects[key] = self.now.version(self.now.slot(key))\n",
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
        "merge does not expect what it looked at",
        "store/merging.py",
        "            self.expects[key] = self.line.version(ours)\n",
        "",
        "tests/store/test_merge.py",
    ),
    Bug(
        "merge rests on a past that a restore has ended",
        "store/stage.py",
        "if rests != (self.origin, self.merged):",
        "if False:",
        "tests/store/test_merge.py",
    ),
    Bug(
        "merge forgotten by the saves",
        "store/stage.py",
        "if kind == DELTA else 0,\n                self.merged,\n",
        "if kind == DELTA else 0,\n                0,\n",
        "tests/store/test_merge.py",
    ),
    Bug(
        "restore keeps the merges of the state before",
        "store/timeline.py",
        "self.origin, self.merged = at, 0",
        "self.origin = at",
        "tests/store/test_merge.py",
    ),
    Bug(
        "search for the common past ends too early",
        "store/ancestry.py",
        "            min(pair) >= 0 for pair in marks if pair[1 - side] >= 0\n",
        "            True for pair in marks\n",
        "tests/store/test_ancestry.py",
    ),
    Bug(
        "restore that takes sticky keys back",
        "store/sticky.py",
        "for prefix in sorted([PREFIX, *(one.prefix for one in declared.of(Sticky))]):",
        "for prefix in [PREFIX]:",
        "tests/store/test_sticky.py",
    ),
    Bug(
        "sticky keys deleted since come back",
        "store/sticky.py",
        "        for key, _, after in tree_changes(trees, then, now, prefix)\n",
        "        for key, _, after in tree_changes(trees, then, now, prefix) if after\n",
        "tests/store/test_sticky.py",
    ),
    Bug(
        "ephemeral keys seen before the rest is committed",
        "store/committer.py",
        "            self.held.setdefault(id(change), []).append((stage.timeline, made, done))\n",
        "            self.core.ephemerals.apply(stage.timeline, made)\n",
        "tests/store/test_ephemeral.py",
    ),
    Bug(
        "ephemeral keys outlive a restore",
        "store/ephemeral.py",
        "held = old.slots if old is not None and old.origin == timeline.origin else {}",
        "held = old.slots if old is not None else {}",
        "tests/store/test_ephemeral.py",
    ),
    Bug(
        "short list left as a tree by a trim",
        "store/trimming.py",
        "        rest = _short_rest(stage, old, first, packer)\n",
        "        rest = None\n",
        "tests/store/test_trim.py",
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
        "rows of a long value swept while its writer lives",
        "store/pins.py",
        "if now - self._seen[key][1] < TERM:",
        "if False:",
        "tests/store/test_uploads.py",
    ),
    Bug(
        "entry written though what it names was swept",
        "store/long_writing.py",
        "                stage.cells.append((pin.key, pin.value, None))",
        "                pass",
        "tests/store/test_uploads.py",
    ),
    Bug(
        "rows of a long value under a key that leaves the ring",
        "store/uploads.py",
        "absent = [self.ledger.tombstone, rekeyed]",
        "absent = [self.ledger.tombstone]",
        "tests/store/test_uploads.py",
    ),
    Bug(
        "values that no entry names pass for sound",
        "store/verify_uploads.py",
        "        if unknown:",
        "        if False:",
        "tests/store/test_long_values.py",
    ),
    Bug(
        "term of an overwritten value stays in the lookup",
        "store/term_keeper.py",
        '        self._more += [("delete", name) for name in sorted(old - new)]\n',
        "",
        "tests/store/test_lookups_model.py",
    ),
    Bug(
        "bool taken for an int in a lookup",
        "store/terms.py",
        'return BOOL + ("1" if term else "0")',
        "return INT + _int(int(term))",
        "tests/store/test_lookups_model.py",
    ),
    Bug(
        "lookup of an earlier declaration taken for this one's",
        "store/term_keeper.py",
        '                self._more.append(("delete", built))\n',
        "                pass\n",
        "tests/store/test_lookups.py",
    ),
    Bug(
        "verify that does not look at lookups",
        "store/verify_line.py",
        "            check_lookups(self.check, line)\n",
        "            pass\n",
        "tests/store/test_lookups_damage.py",
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
        "batch.cells += [(key, cell, cell) for key, cell in self.cells.items()]",
        "pass",
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
