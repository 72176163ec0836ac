"""`holdfast query`: find keys by what their values hold."""

from __future__ import annotations

import re
from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.history import shown_values
from holdfast.cli.key import at_option, reveal_option, scope_argument
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, InvalidValueError
from holdfast.store.inner import json

_CONDITION = re.compile(r"(?P<term>[^=<>^]+)(?P<sign>\^=|<=|>=|=|<|>)(?P<value>.*)", re.DOTALL)
_SIDES = {">": "gt", ">=": "ge", "<": "lt", "<=": "le"}


@click.command(cls=Command)
@scope_argument
@click.argument("lookup")
@click.argument("conditions", nargs=-1, metavar="[CONDITION]...")
@at_option
@click.option("--order", metavar="TERM", help="Sort by a term; -TERM for the other direction.")
@click.option("--limit", type=click.IntRange(1), default=100, help="At most so many. [100]")
@click.option("--after", metavar="CURSOR", help="Go on behind the page before.")
@reveal_option
@pass_session
def query(
    session: Session,
    scope: str,
    lookup: str,
    conditions: tuple[str, ...],
    at: str | None,
    order: str | None,
    limit: int,
    after: str | None,
    reveal: bool,
) -> None:
    """Keys and values that a lookup leads to; those that are sensitive only with --reveal.

    CONDITION is TERM=VALUE, TERM>VALUE (also >=, <, <=) or TERM^=BEGINNING; all must hold. VALUE
    is JSON (`1`, `true`, `"1"`, `{"$time": …}`), or plain text where it is none.
    """
    where = _where(conditions)
    with session.reading() as store:
        view: Any = session.view(store, scope, at)
        page = view.find(lookup, where, order=order, limit=limit, after=after)
        values = shown_values(view, page.items, reveal)
    if session.json:
        found = [{"key": key, "value": json.tagged(value)} for key, value in values]
        output.document({"scope": str(view.scope), "found": found, "after": page.after})
        return
    output.table(["key", "value"], [[key, json.dumps(value)] for key, value in values])
    if page.after is not None:
        output.note(f"there are more: --after {page.after}")


def _where(conditions: tuple[str, ...]) -> dict[str, Any]:
    """What is asked of each term; two sides of a range come together."""
    from holdfast.store.inner import Begins, Range

    exact: dict[str, Any] = {}
    sides: dict[str, dict[str, Any]] = {}
    for text in conditions:
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise InvalidInputError(f"{text[:80]!r} is no condition; write status=open or due<10")
        term, sign, value = found["term"].strip(), found["sign"], found["value"]
        side = _SIDES.get(sign)
        if term in exact or (term in sides and (side is None or side in sides[term])):
            raise InvalidInputError(f"two conditions on {term!r} say the same thing: give one")
        if side is not None:
            sides.setdefault(term, {})[side] = _value(value)
        else:
            exact[term] = Begins(value) if sign == "^=" else _value(value)
    return exact | {term: Range(**given) for term, given in sides.items()}


def _value(text: str) -> Any:
    """JSON, or the text itself where it is none."""
    try:
        return json.loads(text)
    except InvalidValueError:
        return text
