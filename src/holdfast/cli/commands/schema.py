"""`holdfast schema` and `holdfast migrate`: what values have to be, and leading older ones on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from holdfast.cli.command import Group, loaded, option, seconds, several
from holdfast.cli.session import Session
from holdfast.schemas.migrations import COMPLETED, MigrationReport, Migrations, Schemas

FAILED = 1
_module_option = several(
    "--module=modules", "MODULE", "A module that registers transforms; may be given several times."
)


@click.group(cls=Group)
def schema() -> None:
    """What values have to be: schemas that scopes have declared."""


@schema.verb("list [SCHEMA]=name")
def list_(session: Session, name: str | None) -> None:
    """The newest version of each schema; with SCHEMA, all versions of it."""
    with session.reading() as store:
        found = Schemas(store).list() if name is None else Schemas(store).history(name)
    if session.json:
        session.tell({"schemas": [one.says() for one in found]})
        return
    session.table(
        "schemas",
        found,
        "schema=name, version, semantic, prefix, compatible, steps",
        steps=lambda one: ", ".join(f"{s.from_version} to {s.to_version}" for s in one.steps),
    )


@schema.verb("check SCOPES=scope SCHEMA=name")
@_module_option
def check(session: Session, scope: str, name: str, modules: tuple[str, ...]) -> int:
    """Check the stored values of a schema, each led through the steps; nothing is changed.

    SCOPES is a scope, or a pattern: 'agent:*'. Ends with 1 if a value breaks the schema.
    """
    return _run(session, scope, name, dry_run=True, modules=modules)


@click.group(cls=Group)
def migrate() -> None:
    """Lead the values of older versions of a schema to the one that is declared."""


@migrate.verb("plan SCOPES=scope SCHEMA=name")
@_module_option
def plan(session: Session, scope: str, name: str, modules: tuple[str, ...]) -> int:
    """What a migration would do, and what would fail; nothing is changed."""
    return _run(session, scope, name, dry_run=True, modules=modules)


@migrate.verb("run SCOPES=scope SCHEMA=name --dry-run")
@click.option("--to", type=int, metavar="VERSION", help="Refuse if another one is declared.")
@option("--only=key", "KEY", "One value alone.")
@click.option("--batch-size", type=click.IntRange(1), default=100, help="[100]")
@seconds("--timeout", 300.0, "Then stop; run it again.")
@_module_option
def run(session: Session, /, **more: Any) -> int:
    """Migrate the values of a schema, scope by scope: all of a scope, or none.

    SCOPES is a scope, or a pattern: 'agent:*'. Cut short, run it again. Ends with 1 if a value
    could not be migrated; then nothing of its scope was changed.
    """
    return _run(session, **more)


@migrate.verb("status SCOPES=scope SCHEMA=name")
def status(session: Session, scope: str, name: str) -> None:
    """How far migrations are, and of which versions the values are."""
    with session.reading() as store:
        found = Migrations(store).status(scope, name)
    _tell(session, found)


def _run(
    session: Session,
    scope: str,
    name: str,
    *,
    dry_run: bool,
    modules: tuple[str, ...],
    **more: object,
) -> int:
    for module in modules:
        loaded(module)
    with session.reading() if dry_run else session.writing() as store:
        found = Migrations(store).run(scope, name, dry_run=dry_run, **more)  # type: ignore[arg-type]
    _tell(session, found)
    if not session.json:
        for one in found:
            for failure in one.failures:
                session.note(f"{one.scope}: {failure}")
    return FAILED if any(one.failures for one in found) else 0


def _tell(session: Session, found: Iterable[MigrationReport]) -> None:
    session.table(
        "migrations",
        found,
        "scope, schema, to, status, migrated, failures, versions, checkpoint",
        status=lambda one: (
            "would migrate" if one.dry_run and one.status == COMPLETED else one.status
        ),
        failures=lambda one: len(one.failures) or None,
        versions=versions_of,
        checkpoint=lambda one: one.checkpoint.id if one.checkpoint is not None else None,
    )


def versions_of(one: MigrationReport) -> str:
    """How many values there were of each version."""
    found = sorted(one.versions.items())
    return ", ".join(f"{count} of version {version}" for version, count in found)
