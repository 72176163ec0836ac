"""`holdfast revert` and `blame`: undo what some entries did, and see who wrote what."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.key import key_argument, reveal_option, scope_argument
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError
from holdfast.store.inner import json

if TYPE_CHECKING:
    from holdfast.store.names.items import Reverted
    from holdfast.sync import Store


@click.command(cls=Command)
@click.argument("scope", required=False, shell_complete=complete_scope)
@click.option("--correlation", metavar="TEXT", help="Undo the entries with this correlation.")
@click.option(
    "--entry", "numbers", type=click.IntRange(1), multiple=True, help="This one; several if given."
)
@click.option("--actor", "who", metavar="NAME", help="Undo all that this actor did.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--reason", help="Why; it is kept with the entry.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def revert(
    session: Session,
    scope: str | None,
    correlation: str | None,
    numbers: tuple[int, ...],
    who: str | None,
    dry_run: bool,
    reason: str | None,
    yes: bool,
) -> None:
    """Undo what some entries did: only the keys they changed, as one new entry.

    A key that somebody else changed since is left alone and named. Without SCOPE, the entries of a
    correlation are undone in all scopes, as one change. (--actor behind `revert` says whose
    entries; who acts is given before it.)
    """
    which = _Which(scope, correlation, numbers, who)
    if scope is None and session.timeline != "main":
        raise InvalidInputError("without SCOPE all timelines are meant: leave --timeline out")
    with session.reading() if dry_run else session.writing() as store:
        if not dry_run and not yes:
            _confirm(which.run(session, store, True, None), quiet=session.json)
        done = which.run(session, store, dry_run, reason)
    if session.json:
        found = [plain.reverted(one) for one in done]
        output.document(found[0] if scope is not None else {"scopes": found})
        return
    for one in done:
        _say(one)


class _Which:
    """Which entries are to be undone, and where."""

    def __init__(
        self,
        scope: str | None,
        correlation: str | None,
        numbers: tuple[int, ...],
        actor: str | None,
    ) -> None:
        if (correlation is not None) + bool(numbers) + (actor is not None) != 1:
            raise InvalidInputError("say which entries: --correlation, --entry or --actor, one")
        if scope is None and correlation is None:
            raise InvalidInputError("over all scopes only a --correlation can be undone: add SCOPE")
        self.scope = scope
        self.correlation = correlation
        self.numbers = list(numbers) or None
        self.actor = actor

    def run(
        self, session: Session, store: Store, dry_run: bool, reason: str | None
    ) -> list[Reverted]:
        """Undo them, or say what that would do."""
        if self.scope is None:
            assert self.correlation is not None
            return store.revert(correlation=self.correlation, dry_run=dry_run, reason=reason)
        state = session.state(store, self.scope)
        done = state.revert(
            correlation=self.correlation,
            entries=self.numbers,
            actor=self.actor,
            dry_run=dry_run,
            reason=reason,
        )
        return [done]


def _confirm(planned: list[Reverted], *, quiet: bool) -> None:
    count = sum(len(one.done) for one in planned)
    keys = f"{count} keys" if count != 1 else "1 key"
    scopes = ", ".join(str(one.scope) for one in planned if one.done)
    if not count:
        return
    if not sys.stdin.isatty():
        raise InvalidInputError(
            f"{keys} of {scopes} would go back: add --yes if that is meant, or --dry-run"
        )
    for one in planned:
        if not quiet:
            _show(one)
    click.confirm(output.clean(f"Let {keys} of {scopes} go back?"), abort=True, err=True)


def _show(planned: Reverted) -> None:
    if planned.diff is not None:
        output.say(output.clean(f"{planned.scope}:"))
        output.changes(planned.diff)


def _say(done: Reverted) -> None:
    if done.dry_run:
        _show(done)
    else:
        count = f"{len(done.done)} keys went back" if len(done.done) != 1 else "1 key went back"
        output.say(
            output.clean(f"{done.scope}: {count}{': ' if done.done else ''}")
            + output.clean(", ".join(done.done))
        )
        if done.entry is not None:
            line = "" if done.timeline == "main" else f" --timeline {done.timeline}"
            undo = f"to undo it: holdfast revert {done.scope} --entry {done.entry}{line}"
            output.say(output.clean(undo))
    for left in done.left:
        output.note(f"left alone: {left.key}{': ' if left.key else ''}{left.why}")


@click.command(cls=Command)
@scope_argument
@key_argument
@click.argument("path", required=False)
@click.option("--limit", type=click.IntRange(1), default=1000, help="Versions to look at. [1000]")
@reveal_option
@pass_session
def blame(
    session: Session, scope: str, name: str, path: str | None, limit: int, reveal: bool
) -> None:
    """Who wrote each part of a value: entry, actor, correlation and time.

    PATH asks for one part: `steps[3].done`. An entry that begins with ≤ is not newer than that.
    """
    with session.reading() as store:
        found = session.state(store, scope).blame(name, path, limit=limit, reveal=reveal)
    if session.json:
        output.document(plain.blame(found))
        return
    output.table(
        ["entry", "time", "actor", "correlation", "part", "value"],
        [
            [
                f"{'' if one.exact else '≤ '}{one.timeline}@{one.entry}",
                one.time,
                one.cause.actor,
                one.cause.correlation,
                one.path,
                _short(json.dumps(one.value)),
            ]
            for one in found
        ],
    )
    if not found.complete:
        output.note(f"{found.versions} versions were looked at: --limit looks further back")


def _short(text: str, width: int = 80) -> str:
    return text if len(text) <= width or not sys.stdout.isatty() else text[: width - 1] + "…"
