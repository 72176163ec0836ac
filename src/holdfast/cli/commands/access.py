"""`holdfast access`: who may read and write what, and all rules of one scope."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from holdfast.access.grants import PERMISSIONS, Access
from holdfast.checkpoints.policy.policies import Policies
from holdfast.checkpoints.scheduler import Scheduler
from holdfast.cli import output
from holdfast.cli.command import Group, flag
from holdfast.cli.commands.policy import kept_of
from holdfast.cli.commands.schema import versions_of
from holdfast.cli.plain import plain
from holdfast.cli.session import Session, moment
from holdfast.errors import InvalidInputError, MissingError
from holdfast.recovery.setup.configuration import Configuration
from holdfast.schemas.migrations import Migrations
from holdfast.schemas.schema import SchemaRule
from holdfast.store.inner import Declaration
from holdfast.store.names.patterns import Patterns
from holdfast.sync import Store

prefix_option = click.option("--prefix", default="", help="Only keys that begin so.")
permission_argument = click.argument("permission", type=click.Choice(list(PERMISSIONS)))


access = Group("access", help="Who may read and write what, and all rules of one scope.")


@access.verb("grant PRINCIPAL SCOPE")
@permission_argument
@prefix_option
@flag("--below", "Also the scopes below it.")
@click.option("--until", type=moment, metavar="TIME", help="Up to a time, with its zone.")
def grant(session: Session, principal: str, scope: str, permission: str, **more: Any) -> None:
    """Let somebody read or write a scope, or those that fit a pattern (agent:*)."""
    with session.writing() as store:
        made = Access(store).grant(principal, scope, permission, **more)
    session.tell(made, str(made))


@access.verb("revoke PRINCIPAL SCOPE")
@prefix_option
def revoke(session: Session, principal: str, scope: str, prefix: str) -> None:
    """End a grant; it is over for every process with its next call."""
    with session.writing() as store:
        if not Access(store).revoke(principal, scope, prefix=prefix):
            raise MissingError(
                f"{principal} has no such grant; name the scope (or pattern) and the prefix that "
                "it was made for"
            )
    session.tell({"revoked": True}, f"{principal} has no such grant any more")


@access.verb("check PRINCIPAL SCOPE")
@permission_argument
@click.option("--key", "name", default="", help="Whether one key may be.")
def check(session: Session, principal: str, scope: str, permission: str, name: str) -> int:
    """Whether somebody may do something, and why; exits with 1 if not."""
    with session.reading() as store:
        found = Access(store)
        allowed = found.check(principal, scope, permission, key=name)
        why = found.explain(principal, scope, permission, key=name)
    session.tell({"allowed": allowed, "why": why}, why)
    return 0 if allowed else 1


@access.verb("show SCOPE")
@click.option("--config", metavar="FILE", help="A configuration, for which backups are made.")
def show(session: Session, scope: str, config: str | None) -> None:
    """All rules of a scope: who may what, schemas, what is kept, schedules, policies, backups."""
    with session.reading() as store:
        found = {**Access(store).show(scope), **_upkeep(store, scope)}
    if config is not None:
        found["backups"] = [
            f"every {one.interval:g} s, {one.keep or 'all'} kept: "
            + (f"signed exports of {', '.join(one.scopes)}" if one.scopes else "the whole store")
            for one in Configuration.load(config).backups
            if not one.scopes or Patterns(one.scopes).fit(scope)
        ]
    lines = [f"scope: {found['scope']}"]
    for name, some in found.items():
        if name != "scope":
            lines += [f"{name}:", *(f"  {one}" for one in some)] if some else [f"{name}: none"]
    session.tell(found, *lines)


def _upkeep(store: Store, scope: str) -> dict[str, Any]:
    """What is done by itself for one scope, and for no other."""
    state = store.scope(scope)
    declared = state.declared()
    schemas = [one.name for one in declared if isinstance(one, SchemaRule)]
    policies: list[str] = []
    with suppress(InvalidInputError):  # only agents have some
        for one in Policies(store, watch=False).explain(state):
            off = "" if one.policy.enabled else ", off"
            kept = kept_of(one.policy) or "all"
            policies.append(f"{one.policy.id} ({one.source}{off}): keeps {kept}")
    return {
        "rules": [_rule(one) for one in declared],
        "migrations": [
            f"{one.schema} to version {one.to}: {one.status.replace('_', ' ')}"
            + (f", {versions_of(one)}" if one.versions else "")
            for name in schemas
            for one in Migrations(store).status(scope, name)
        ],
        "schedules": [
            f"{one.name}: {one.when}" + (" (retention)" if one.retention else "")
            for one in Scheduler(store).schedules()
            if str(one.scope) == scope
        ],
        "policies": policies,
    }


def _rule(one: Declaration) -> str:
    """What is declared, in words; a digest says nothing to people."""
    said = [f"{name} {output.cell(content)}" for name, content in plain(one).items() if content]
    return f"{one.kind}: {', '.join(text for text in said if not text.startswith('digest '))}"
