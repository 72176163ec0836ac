"""`holdfast repair` and `quarantine`: what is damaged, mended and set aside."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Command, Group, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.copies import copy_option, opened
from holdfast.cli.key import scope_argument
from holdfast.cli.plain import time_text
from holdfast.cli.recovery import (
    check_page,
    plan_shape,
    report_shape,
    write_page,
)
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, LeaseHeldError, RecoveryFailedError
from holdfast.store.inner import core_of, handle_of
from holdfast.store.names.scope import Scope

if TYPE_CHECKING:
    from holdfast.recovery.heal import Healed
    from holdfast.recovery.quarantine import Quarantined
    from holdfast.recovery.report import RecoveryPlan, RecoveryReport
    from holdfast.store.inner import Finding
    from holdfast.sync import Store


@click.command(cls=Command)
@click.argument("scope", required=False, shell_complete=complete_scope)
@copy_option
@click.option("--budget", type=click.FloatRange(0), metavar="SECONDS", help="For finding damage.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and do nothing.")
@click.option("--report", "page", metavar="FILE", help="Write the report (of one scope): .md, …")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def repair(session: Session, /, scope: str | None, **given: Any) -> int:
    """Mend what is damaged, of a scope or of all: damaged keys from the newest whole checkpoint.

    If keys alone are not enough, entries are replayed, or an older state or a copy is taken: the
    plan says which, and what that loses. With --copy, rows that a copy still has are healed before,
    which loses nothing. A timeline whose name no copy has gets another. Damaged rows are set aside
    (see `quarantine`). Leases that are damaged are removed: whoever holds one has lost it.

    Exits with 1 if damage is left, be it in the past alone, and with 3 if none is known but
    --budget ended the search.
    """
    check_page(given["page"])
    if given["page"] is not None and scope is None:
        raise InvalidInputError("--report is about one scope: name it")
    with (
        session.reading() if given["dry_run"] else session.writing() as store,
        opened(session, given["copies"]) as copies,
    ):
        if scope is not None:
            session.state(store, scope)
        damage = _Damage(store, copies, scope, given["budget"])
        damage.look(as_if_healed=given["dry_run"])
        if damage.mendable and not given["dry_run"]:
            if not given["yes"]:
                _confirm(session, damage)
            damage.mend()
            for one in damage.repaired if given["page"] is not None else []:
                write_page(one, given["page"])
    _say(session, damage)
    return 1 if damage.left else 0 if damage.complete else 3


_MADE = (b"T".hex(), b"R".hex())
"""Kinds of rows some of which can be made again without a copy."""


class _Damage:
    """What was found, what is to be done about it, and what was."""

    def __init__(
        self, store: Store, copies: list[Store], scope: str | None, budget: float | None
    ) -> None:
        from holdfast.recovery.recovery import Recovery

        self._store = store
        self._scope, self._budget = scope, budget
        self._recovery = Recovery(store, copies=copies)
        self.copies = [
            core_of(one) for one in copies if core_of(one).lineage == core_of(store).lineage
        ]
        """Those that rows can be healed from; the others may still have the state."""
        self.found: list[Finding] = []
        self.plans: list[RecoveryPlan] = []
        self.left: list[str] = []
        """What cannot be mended here, and why."""
        self.complete = True
        """Whether all was looked at, before and after mending."""
        self.entries = 0
        """How many were, the last time."""
        self.healing: dict[str, int] = {}
        """How many rows of a scope (of the store itself: an empty text) would be healed, if this is
        only looked at."""
        self.leases = 0
        """Damaged cells of leases, which hold no state and are removed."""
        self.healed: list[Healed] = []
        self.repaired: list[RecoveryReport] = []

    def look(self, as_if_healed: bool = False) -> None:
        """Find damage, and plan what to do about it, or about what healing would leave of it."""
        report = self._store.verify(self._scope, budget=self._budget)
        self.found, self.entries = report.findings, report.entries
        self.complete = self.complete and report.resume is None
        self.plans, self.left = [], []
        for scope, mine in self._by_scope().items():
            if as_if_healed:
                mine = self._without_healed(scope, mine)
            if scope and mine:
                self._plan(scope, mine)
            elif not scope:
                self._plan_store(mine)

    def _without_healed(self, scope: str, mine: list[Finding]) -> list[Finding]:
        """What would be left of findings."""
        from holdfast.recovery.heal import would_heal, would_heal_directory

        core = core_of(self._store)
        if scope:
            mine, given = would_heal(core, Scope.parse(scope), mine, self.copies)
        else:
            mine, given = would_heal_directory(handle_of(self._store), mine, self.copies)
        self.healing |= {scope: len(given)} if given else {}
        return mine

    def _plan_store(self, mine: list[Finding]) -> None:
        """What to do about findings that belong to no scope."""
        leases = [o for o in mine if o.kind == "damage" and o.place.startswith("lease ")]
        self.leases = len(leases)
        mine = [one for one in mine if one not in leases]
        if mine:
            places = ", ".join(f"{one.place}: {one.message}" for one in mine[:3])
            self.left.append(f"{places}: only a whole copy of the store helps")

    @property
    def mendable(self) -> bool:
        """Whether there is something to do."""
        made = any(one.row[:2] in _MADE for one in self.found)
        return bool(self.plans or self.leases or made or (self.copies and self.found))

    def _by_scope(self) -> dict[str, list[Finding]]:
        scopes: dict[str, list[Finding]] = {}
        for one in self.found:
            scopes.setdefault(one.scope, []).append(one)
        return scopes

    def _plan(self, scope: str, found: list[Finding]) -> None:
        from holdfast.recovery.failures import found_failure
        from holdfast.recovery.lost_entries import Tails
        from holdfast.recovery.strategies import readable

        state = self._store.scope(scope)
        if readable(handle_of(state)) and Tails(handle_of(self._store)).lost(state.scope) is None:
            places = ", ".join(one.place for one in found[:3]) + (", …" if len(found) > 3 else "")
            self.left.append(
                f"{scope}: its newest state is whole, its past is not: {places}; a copy of the "
                "store that still has it heals it (--copy), nothing else does"
            )
            return
        failure = found_failure(found)
        assert failure is not None
        plan = self._recovery.plan(scope, failure)
        if plan.strategy is None:
            self.left.append(f"{scope}: no strategy serves; give a copy of the store with --copy")
        else:
            self.plans.append(plan)

    def mend(self) -> None:
        """Heal what can be, which loses nothing but names of timelines; then do what plans say, and
        look at what is left."""
        while self._heal():
            self.look()
        if self.leases:
            core_of(self._store).leases.drop_damaged()
        failed: dict[str, str] = {}
        for plan in self.plans:
            try:
                self.repaired.append(self._recovery.recover(plan.agent, plan.failure))
            except (LeaseHeldError, RecoveryFailedError) as error:
                if self._scope is not None:
                    raise
                failed[str(plan.agent)] = f"{plan.agent}: {error}"  # and the others are mended
        found, plans, leases = self.found, self.plans, self.leases
        self.look()
        damaged = [one for one in self.plans if str(one.agent) not in failed]
        self.left += [*failed.values(), *(f"{one.agent}: it is still damaged" for one in damaged)]
        self.found, self.plans, self.leases = found, plans, leases  # what was, for who reads of it

    def _heal(self) -> bool:
        """Heal what was found; whether that was something."""
        from holdfast.recovery.heal import heal_all, heal_directory

        handle, before = handle_of(self._store), len(self.healed)
        for scope, mine in self._by_scope().items():
            if scope:
                one = Scope.parse(scope)
                self.healed += heal_all(handle, one, mine, self.copies, rename=True)[1]
            else:
                self.healed += heal_directory(handle, mine, self.copies)
        return len(self.healed) > before


def _confirm(session: Session, damage: _Damage) -> None:
    scopes = sorted({one.scope or "the store" for one in damage.found})
    names = ", ".join(scopes[:5]) + (", …" if len(scopes) > 5 else "")
    if not sys.stdin.isatty():
        raise InvalidInputError(
            f"{names} would be repaired: see the plan with --dry-run, then add --yes"
        )
    if not session.json:
        _say(session, damage)
    click.confirm(output.clean(f"Repair {names}?"), abort=True, err=True)


def _say(session: Session, damage: _Damage) -> None:
    if session.json:
        told = {
            "plans": [plan_shape(plan) for plan in damage.plans],
            "leases": damage.leases,
            "healing": damage.healing,
            "healed": [
                {
                    "scope": str(one.scope or ""),
                    "place": one.place,
                    "copy": one.copy,
                    "lost": one.lost or None,
                }
                for one in damage.healed
            ],
            "repaired": [report_shape(one) for one in damage.repaired],
            "left": damage.left,
            "complete": damage.complete,
            "entries": damage.entries,
        }
        output.document({"findings": len(damage.found), **told})
        return
    for healed in damage.healed:
        how = "made again" if healed.copy is None else "healed from a copy"
        lost = f"; lost: {healed.lost}" if healed.lost else ""
        output.say(output.clean(f"{healed.scope or 'store'}: {how}: {healed.place}{lost}"))
    for scope, count in damage.healing.items():
        output.say(output.clean(f"{scope or 'store'}: {count} rows would be healed"))
    if damage.leases:
        output.say("damaged leases, which hold no state, are removed: anybody can take them again")
    for one in damage.repaired or damage.plans:
        for line in str(one).splitlines():
            output.say(output.clean(line))
    for text in damage.left:
        output.note(f"not mended: {text}")
    if not damage.found and not damage.healed:
        output.say("nothing is damaged" if damage.complete else "nothing damaged was found so far")
    if not damage.complete:
        output.note(
            f"not all was looked at: the time ran out after {damage.entries} entries; go on with "
            "more of it (--budget), or without --budget"
        )


# what was set aside


@click.group(cls=Group)
def quarantine() -> None:
    """Damaged rows as they were found, kept for whoever wants to know what happened."""


@quarantine.command("list")
@click.argument("scope", required=False, shell_complete=complete_scope)
@click.option("--all", "everything", is_flag=True, help="Released ones, too.")
@pass_session
def list_(session: Session, scope: str | None, everything: bool) -> None:
    """What was set aside, of a scope or of all."""
    from holdfast.recovery.records import check_there, readable, recovered_agents
    from holdfast.recovery.recovery import Recovery
    from holdfast.store.names.scope import Scope

    with session.reading() as store:
        made = Recovery(store)
        if scope is not None:
            found = made.quarantine(scope).list()
            if not found:
                check_there(handle_of(store), Scope.parse(scope))
        else:  # what is damaged in its turn keeps nobody from seeing the rest
            agents = recovered_agents(handle_of(store))
            lists = readable(agents, lambda agent: made.quarantine(agent).list())
            found = [one for some in lists for one in some]
    found = [one for one in found if everything or one.released_at is None]
    if session.json:
        output.document({"quarantine": [_shape(one) for one in found]})
        return
    output.table(
        ["id", "scope", "what", "why", "bytes", "found", "released"],
        [
            [
                one.id,
                one.agent,
                one.place,
                one.why,
                len(one.content) if one.content is not None else "missing",
                one.found_at,
                one.released_at,
            ]
            for one in found
        ],
    )


@quarantine.command()
@scope_argument
@click.argument("id")
@click.option("-o", "--output", "file", type=click.File("wb"), help="Write the row's bytes here.")
@pass_session
def show(session: Session, scope: str, id: str, file: Any) -> None:
    """One of them: what it is, why it is damaged, which recovery found it.

    The bytes are as they lay in storage: sealed if the store is encrypted.
    """
    from holdfast.recovery.recovery import Recovery

    with session.reading() as store:
        found = Recovery(store).quarantine(scope).get(id)
    if file is not None:
        if found.content is None:
            raise InvalidInputError(f"{id}: there are no bytes: it was missing, or is released")
        file.write(found.content)
    if session.json:
        output.document(_shape(found))
    else:
        output.fields([(name, text) for name, text in _shape(found).items() if text is not None])


@quarantine.command()
@scope_argument
@click.argument("id")
@click.option("--reason", default="", help="Why; it is kept.")
@pass_session
def release(session: Session, scope: str, id: str, reason: str) -> None:
    """Say that one is dealt with; its bytes are let go, and stay in the history alone.

    One that was released before stays as it is, with the reason and time of then.
    """
    from holdfast.recovery.recovery import Recovery

    with session.writing() as store:
        done = Recovery(store).quarantine(scope).release(id, reason)
    if session.json:
        output.document(_shape(done))
    else:
        why = f": {done.reason}" if done.reason else ""
        output.say(output.clean(f"{scope}: {id} is released since {_released(done)}{why}"))


def _released(found: Quarantined) -> str | None:
    return time_text(found.released_at) if found.released_at is not None else None


def _shape(found: Quarantined) -> dict[str, Any]:
    return {
        "id": found.id,
        "scope": str(found.agent),
        "place": found.place,
        "kind": found.kind,
        "why": found.why,
        "bytes": len(found.content) if found.content is not None else None,
        "recovery": found.recovery or None,
        "found_at": time_text(found.found_at),
        "released_at": _released(found),
        "reason": found.reason or None,
    }
