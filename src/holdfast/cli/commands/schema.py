"""`holdfast schema` and `holdfast migrate`: what values have to be, and leading older ones on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli.command import Group, option, seconds
from holdfast.cli.session import Session
from holdfast.schemas.migrations import COMPLETED, MigrationReport, Migrations, Schemas

schema = Group("schema", help="What values have to be: schemas that scopes have declared.")


@schema.verb("list [SCHEMA]=name")
def list_(session: Session, name: str | None) -> None:
    """The newest version of each schema; with SCHEMA, all versions of it."""
    with session.reading() as store:
        found = Schemas(store).list() if name is None else Schemas(store).history(name)
    session.table(
        "schemas",
        [one.says() for one in found],
        "schema=name, version, semantic, prefix, compatible, steps",
        steps=lambda one: ", ".join(f"{s['from']} to {s['to']}" for s in one["steps"]),
    )


@schema.verb("check SCOPES=scope SCHEMA=name --module")
def check(session: Session, scope: str, name: str) -> int:
    """What a migration would do with the stored values of a schema; nothing is changed.

    SCOPES is a scope, or a pattern: 'agent:*'. Each value is led through the steps, and checked.
    Ends with 1 if one breaks the schema.
    """
    with session.reading() as store:
        return _told(session, Migrations(store).run(scope, name, dry_run=True))


migrate = Group(
    "migrate", help="Lead the values of older versions of a schema to the one that is declared."
)


migrate.add_command(check, "plan")


@migrate.verb("run SCOPES=scope SCHEMA=name --dry-run --module")
@click.option("--to", type=int, metavar="VERSION", help="Refuse if another one is declared.")
@option("--only=key", "KEY", "One value alone.")
@click.option("--batch-size", type=click.IntRange(1), default=100, help="[100]")
@seconds("--timeout", 300.0, "Then stop; run it again.")
def run(session: Session, scope: str, name: str, **more: Any) -> int:
    """Migrate the values of a schema, scope by scope: all of a scope, or none.

    SCOPES is a scope, or a pattern: 'agent:*'. Cut short, run it again. Ends with 1 if a value
    could not be migrated; then nothing of its scope was changed.
    """
    with session.reading() if more["dry_run"] else session.writing() as store:
        return _told(session, Migrations(store).run(scope, name, **more))


@migrate.verb("status SCOPES=scope SCHEMA=name")
def status(session: Session, scope: str, name: str) -> None:
    """How far migrations are, and of which versions the values are."""
    with session.reading() as store:
        _told(session, Migrations(store).status(scope, name))


def _told(session: Session, found: Sequence[MigrationReport]) -> int:
    """Tell of migrations; what the command ends with."""
    session.table(
        "migrations",
        found,
        "scope, schema, to, status, migrated, failures, versions, checkpoint=checkpoint.id",
        status=lambda one: (
            "would migrate" if one.dry_run and one.status == COMPLETED else one.status
        ),
        failures=lambda one: len(one.failures) or None,
        versions=versions_of,
    )
    for one in found:
        for failure in one.failures:
            session.note(f"{one.scope}: {failure}")
    return 1 if any(one.failures for one in found) else 0


def versions_of(one: MigrationReport) -> str:
    """How many values there were of each version."""
    found = sorted(one.versions.items())
    return ", ".join(f"{count} of version {version}" for version, count in found)
