"""Entities: things with a type and properties, and relationships between them, in a scope.

entities = Entities(store.custom("fleet"))
planner = entities.create("agent", {"name": "planner", "load": 0.7})
entities.relate(planner, "observes", writer, {"since": 3})
page = entities.query("agent", where={"load": Range(gt=0.5)}, order="-load", limit=10)

An entity is one key, `$entity/ID`; a relationship is one, `$relation/FROM/TYPE/TO`. Lookups that
are declared with the first of them find entities by any property, and relationships by either end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from holdfast.errors import (
    EntityExistsError,
    EntityNotFoundError,
    InvalidInputError,
    LimitExceededError,
    StillNeededError,
)
from holdfast.runtime.runtime_records import (
    ENTITIES,
    LINKED,
    RELATIONS,
    SUBSCRIPTION,
    EntityRecord,
    RelationRecord,
    iso,
    pair_of,
)
from holdfast.store.inner import (
    Begins,
    Book,
    BookPage,
    ChangeParts,
    Lookup,
    Range,
    encode_term,
    handle_of,
    look,
    own_steps,
)
from holdfast.store.names.arguments import by_name, check_flag, check_limit, check_name, listed
from holdfast.store.names.face import Steps, faced, steps, write, writes
from holdfast.store.names.items import Page
from holdfast.store.state import View, declare, stands

PAIRS = Lookup("entity", ENTITIES.prefix, {"pair": "pairs[]", "type": "type"})
"""By each property and its value; the pair "" stands for the entity itself."""
ENDS = Lookup("relation", RELATIONS.prefix, {"end": "ends[]"})
"""Relationships by their type, and by what they lead to."""
MOST_SCANNED = 10_000
"""Entities that a question may read for what no lookup answers."""
MOST_DEPTH = 5
TIE = "the type of a relationship"
DIRECTIONS = ("outgoing", "incoming", "both")
INCLUDE = frozenset(("properties", "relationships"))
_random = random.Random()


@dataclass(frozen=True, slots=True)
class Relationship:
    """A typed relationship from one entity to another. There is at most one of a type."""

    from_id: str
    type: str
    to_id: str
    metadata: Mapping[str, Any]
    created_at: float
    """Seconds since 1970; `created_at_iso` is the same as ISO 8601 text."""
    created_at_iso = iso("created_at")


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing with a type and properties."""

    id: str
    type: str
    properties: Mapping[str, Any]
    created_at: float
    """Seconds since 1970; `created_at_iso` is the same as ISO 8601 text."""
    updated_at: float
    """When its properties last changed; so is `updated_at_iso`."""
    relationships: tuple[Relationship, ...] = ()
    """Those that it has, in both directions, if they were asked for."""
    created_at_iso = iso("created_at")
    updated_at_iso = iso("updated_at")


@dataclass(frozen=True, slots=True)
class Graph:
    """What a traversal reached."""

    ids: tuple[str, ...]
    """The entities, the nearest first; the first is where it began."""
    relationships: tuple[Relationship, ...]
    entities: Mapping[str, Entity] = field(default_factory=dict)
    """The entities by their ids, if they were asked for."""


@faced
class Entities:
    """The entities of one state, or of a view of its past, which can only be read.

    They are part of the state: a checkpoint, a fork, a restore and an erasure take them along.
    Entities are given by their ids, or as what `create` and `get` returned. Ids are text of 1 to
    200 characters without a slash, a backslash and two dots in a row.
    """

    def __init__(self, state: View) -> None:
        if not isinstance(state, View):
            raise InvalidInputError("Entities takes a state of the same face: store.custom(...)")
        self._entities = Book(state, ENTITIES, EntityRecord)
        self._relations = Book(state, RELATIONS, RelationRecord)
        self._state = state
        self._reader = handle_of(state).reader
        self._scope = self._reader.scope
        self._clock = handle_of(state).core.clock

    # entities

    @steps
    def create(
        self, type: str, properties: Mapping[str, Any] | None = None, *, id: str | None = None
    ) -> Steps[Entity]:
        """Make an entity; its id is `TYPE_` and eight hexadecimal digits unless you give one.

        Refused with `EntityExistsError` if there is one of that id, which stays as it is. A
        property of None is left out.
        """
        made = yield from self._created([{"type": type, "properties": properties, "id": id}])
        return made[0]

    @steps
    def bulk_create(self, entities: Iterable[Mapping[str, Any]]) -> Steps[list[Entity]]:
        """Make several in one change, all or none: mappings with `type`, `properties` and `id`."""
        return (yield from self._created(listed(entities, "bulk_create")))

    def _created(self, asked: Iterable[Mapping[str, Any]]) -> Steps[list[Entity]]:
        now, records = self._now(), []
        for one in asked:
            if not isinstance(one, Mapping) or not one.keys() <= {"type", "properties", "id"}:
                raise InvalidInputError(
                    "bulk_create takes mappings with type, and properties and id if you like"
                )
            type, id = check_name(one.get("type"), "the type of an entity"), one.get("id")
            record = EntityRecord.of(type, _checked(one.get("properties")), now, now)
            records.append((check_id(id) if id is not None else None, record))

        def noted(parts: ChangeParts) -> dict[str, EntityRecord]:
            page = self._entities.page(parts.part(handle_of(self._state)))
            made: dict[str, EntityRecord] = {}
            for asked_id, record in records:
                id = asked_id or _drawn(record.type)
                while page.exists(id):
                    if asked_id:
                        raise EntityExistsError(
                            f"{self._scope}: the entity {id} is there; update changes it"
                        )
                    id = _drawn(record.type)
                made[id] = record
                page.put(id, record)
            return made

        def note(parts: ChangeParts) -> Steps[dict[str, EntityRecord]]:
            return (yield look(self._state, noted, parts))  # type: ignore[no-any-return]

        if not (yield look(self._state, stands, handle_of(self._state), PAIRS, ENDS)):
            yield write(declare, handle_of(self._state), (PAIRS, ENDS))
        made = yield from own_steps(self._state, note, reason="entities created")
        return [self._shown(id, record) for id, record in made.items()]

    @writes
    def update(self, id: str | Entity, properties: Mapping[str, Any]) -> Entity:
        """Set some properties, and leave the others; one that is set to None is deleted."""
        id, asked = check_id(id), _checked(properties)

        def note(page: BookPage[EntityRecord]) -> EntityRecord:
            before = self._must(id, page.get(id))
            after = {**before.properties, **asked}
            record = EntityRecord.of(before.type, after, before.created_at, self._now())
            page.put(id, record)
            return record

        return self._shown(id, self._entities.step(note, reason="entity updated"))

    @writes
    def delete(self, id: str | Entity, *, restrict: bool = False) -> bool:
        """Delete an entity with its properties and relationships; whether it was there.

        With `restrict` it is refused with `StillNeededError` while a relationship leads to it.
        """
        id = check_id(id)
        check_flag(restrict, "restrict")

        def note(page: BookPage[EntityRecord], id: str = id) -> bool:
            # First what a relationship would change that comes meanwhile, then those that are
            # there: so none is overlooked, and none stays behind.
            page.change.exists(LINKED.prefix + id)
            if not page.exists(id):
                return False
            relations = page.beside(self._relations)
            page.delete(id)
            page.change.delete(LINKED.prefix + id)
            for one in self._near(id, "both"):
                if restrict and one.to_id == id:
                    raise StillNeededError(
                        f"{self._scope}: {one.from_id} {one.type} {id}; delete that relationship "
                        "first, or the entity without restrict"
                    )
                relations.delete(f"{one.from_id}/{one.type}/{one.to_id}")
                if one.to_id == id and is_subscription(self, one.from_id):
                    note(page, one.from_id)
            return True

        return self._entities.step(note, reason="entity deleted")

    def get(self, id: str | Entity, *, include: Iterable[str] = ()) -> Entity:
        """An entity; `include=["relationships"]` brings those, too."""
        id, wanted = check_id(id), _included(include)
        return self._shown(id, self._must(id, self._entities.get(id)), wanted)

    def exists(self, id: str | Entity) -> bool:
        """Whether there is an entity of an id."""
        return self._entities.get(check_id(id)) is not None

    # questions

    @writes
    def index(self, name: str) -> None:
        """Let entities be found by ranges of a property, and sorted by it, without reading them.

        It is a declaration of the scope: say it once. Names with `.`, `[` or `]` cannot be indexed.
        """
        check_name(name, "the name of a property", 50)
        if set(name) & set(".[]"):
            raise InvalidInputError("a property with . or [ or ] in its name cannot be indexed")
        terms = {"type": "type", "value": f"properties.{name}"}
        declare(handle_of(self._state), (Lookup(_index_name(name), ENTITIES.prefix, terms),))

    def query(
        self,
        type: str | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        order: str | None = None,
        limit: int | None = 100,
        after: str | None = None,
        include: Iterable[str] = (),
    ) -> Page:
        """Entities of a type with such properties, a page of them, sorted by id or by a property.

        A property is asked for by its value, a `Range`, what it `Begins` with, or None: that there
        is none. 1, 1.0, "1" and True are four values. `order` is a property, with `-` in front for
        the other direction; entities without it are left out. Equality needs no preparation.
        Ranges and order read the entities, 10,000 at most, unless the property has an `index`.
        """
        wanted = _included(include)
        check_limit(limit)
        page = _Search(self, type, where, order, limit, after).page()
        found = [self._shown(id, record, wanted) for id, record in page.items]
        return Page(found, page.after)

    def count(
        self,
        type: str | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        group_by: str | None = None,
        target: str = "entities",
    ) -> int | dict[Any, int]:
        """How many entities, or relationships, there are: in all, or by `type` or a property."""
        if group_by is not None:
            check_name(group_by, "group_by")
        found: Iterable[Any]
        if target == "entities":
            found, of = (record for _, record in _Search(self, type, where)), "properties"
        elif target == "relationships" and not where:
            found, of = self.relationships(type=type), "metadata"
        else:
            raise InvalidInputError("target is entities, or relationships without where")
        if group_by is None:
            return sum(1 for _ in found)
        names = (
            one.type if group_by == "type" else getattr(one, of).get(group_by) for one in found
        )
        return dict(Counter(one if encode_term(one) is not None else str(one) for one in names))

    # relationships

    @writes
    def relate(
        self,
        from_id: str | Entity,
        type: str,
        to_id: str | Entity,
        metadata: Mapping[str, Any] | None = None,
    ) -> Relationship:
        """Make a relationship between two entities, which must be there, also when it is durable.

        The same once more is one: its metadata are replaced.
        """
        from_id, to_id = check_id(from_id), check_id(to_id)
        type = check_name(type, TIE)
        if from_id == to_id:
            raise InvalidInputError(f"{from_id} cannot have a relationship to itself")
        kept = _checked(metadata, "metadata")
        return self._entities.step(
            lambda page: self._tied(page, from_id, type, to_id, kept), reason="entities related"
        )

    def _made(self, type: str, id: str, properties: Any, ends: Mapping[str, str]) -> None:
        """Make an entity with its relationships to others, by their types, in one change."""

        def note(page: BookPage[EntityRecord]) -> None:
            now = self._now()
            page.put(id, EntityRecord.of(type, properties, now, now))
            for role, end in ends.items():
                self._tied(page, id, role, end, {})

        self._entities.step(note, reason=f"{type} made")

    def _tied(
        self, page: BookPage[EntityRecord], from_id: str, type: str, to_id: str, kept: Any
    ) -> Relationship:
        """The relationship, in a change that has read both ends."""
        for id in (from_id, to_id):
            self._must(id, page.get(id))
            page.change.set(LINKED.prefix + id, True)
        relations, key = page.beside(self._relations), f"{from_id}/{type}/{to_id}"
        before = relations.get(key)
        made = before.created_at if before is not None else self._now()
        relations.put(key, RelationRecord([f"type/{type}", f"to/{to_id}"], made, kept))
        return Relationship(from_id, type, to_id, kept, made)

    @writes
    def unrelate(self, from_id: str | Entity, type: str, to_id: str | Entity) -> bool:
        """Delete a relationship; whether it was there."""
        type = check_name(type, TIE)
        key = f"{check_id(from_id)}/{type}/{check_id(to_id)}"

        def note(page: BookPage[RelationRecord]) -> bool:
            there = page.exists(key)
            page.delete(key)
            return there

        return self._relations.step(note, reason="relationship deleted")

    def relationships(
        self,
        *,
        from_id: str | Entity | None = None,
        to_id: str | Entity | None = None,
        type: str | None = None,
        limit: int | None = None,
    ) -> list[Relationship]:
        """Relationships: from an entity, to one, of a type, in the order of their ends."""
        check_limit(limit)
        if type is not None:
            type = check_name(type, TIE)
        to = check_id(to_id) if to_id is not None else None
        under = f"{check_id(from_id)}/" if from_id is not None else ""
        end = f"to/{to}" if to is not None else f"type/{type}" if type is not None else ""
        alone = [from_id, to_id, type].count(None) >= 2
        found = self._edges(under, "" if under else end, limit if alone else None)
        fitting = (one for one in found if to in (None, one.to_id) and type in (None, one.type))
        return list(islice(fitting, limit))

    def traverse(
        self,
        start: str | Entity,
        *,
        direction: str = "outgoing",
        types: Iterable[str] | None = None,
        depth: int = 1,
        include_entities: bool = False,
    ) -> Graph:
        """What can be reached from an entity by relationships, up to five steps away."""
        start = check_id(start)
        check_flag(include_entities, "include_entities")
        if direction not in DIRECTIONS:
            raise InvalidInputError(f"direction is {', '.join(DIRECTIONS)}")
        if type(depth) is not int or not 1 <= depth <= MOST_DEPTH:
            raise InvalidInputError(f"depth is a number from 1 to {MOST_DEPTH}")
        wanted = None if types is None else {check_name(one, TIE) for one in listed(types, "types")}
        self._must(start, self._entities.get(start))
        reached: dict[str, None] = {start: None}
        passed: dict[tuple[str, str, str], Relationship] = {}
        edge = [start]
        for _ in range(depth):
            near = [one for id in edge for one in self._near(id, direction)]
            some = [one for one in near if wanted is None or one.type in wanted]
            passed |= {(one.from_id, one.type, one.to_id): one for one in some}
            ends = dict.fromkeys(end for one in some for end in (one.from_id, one.to_id))
            edge = [id for id in ends if id not in reached]
            reached |= dict.fromkeys(edge)
        shown = reached if include_entities else ()
        found = {id: self._shown(id, one) for id in shown if (one := self._entities.get(id))}
        return Graph(tuple(reached), tuple(passed.values()), found)

    def _near(self, id: str, direction: str) -> Iterator[Relationship]:
        if direction != "incoming":
            yield from self._edges(f"{id}/")
        if direction != "outgoing":
            yield from self._edges(end=f"to/{id}")

    def _edges(
        self, under: str = "", end: str = "", limit: int | None = None
    ) -> Iterator[Relationship]:
        """Relationships whose keys begin so, or that are found by their type or what they lead
        to."""
        if end:
            found = self._relations.find(ENDS.name, {"end": end}, limit=limit).items
        else:
            found = list(self._relations.all(under, limit=limit).items())
        for key, record in found:
            from_id, type, to_id = key.split("/")
            yield Relationship(from_id, type, to_id, record.metadata, record.created_at)

    # the inside

    def _shown(self, id: str, record: EntityRecord, wanted: Collection[str] = ()) -> Entity:
        related = tuple(self._near(id, "both")) if "relationships" in wanted else ()
        times = record.created_at, record.updated_at
        return Entity(id, record.type, record.properties, *times, related)

    def _must(self, id: str, record: EntityRecord | None) -> EntityRecord:
        if record is None:
            raise EntityNotFoundError(f"{self._scope} has no entity {id}")
        return record

    def _now(self) -> float:
        return self._clock.claimed() / 1e6


class _Search:
    """One question about entities: which lookup leads to them, and what is left to compare.

    Iterated over, it gives (id, record) as the lookup leads to them; `after` goes along.
    """

    def __init__(
        self,
        entities: Entities,
        type: str | None,
        asked: Mapping[str, Any] | None,
        order: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> None:
        if type is not None:
            type = check_name(type, "the type of an entity")
        if order is not None:
            check_name(order, "order", 101)
        self._entities = entities
        self._where = where = _checked(asked, "where")
        self._name = name = (order or "").removeprefix("-")
        self._down = (order or "").startswith("-")
        self._limit, self.after = limit, after
        known = {one.name for one in entities._reader.declared().of(Lookup)} if type else ()
        of_type = {"type": type} if type is not None else {}
        pairs = {one: pair for one in where if (pair := pair_of(one, where[one]))}
        ranges = [one for one in where if isinstance(where[one], Range | Begins)]
        # The lookup that leads to the fewest: of the order, of an equal pair, of a range, or all.
        led = [one for one in (name, *ranges) if _index_name(one) in known][:1]
        if led and (led == [name] or not pairs):
            self._lookup = _index_name(led[0])
            value = where[led[0]] if led[0] in (*ranges, *pairs) else _Present()
            self._asked = {**of_type, "value": value}
        else:
            self._lookup = PAIRS.name
            self._asked = {"pair": next(iter(pairs.values()), ""), **of_type}
        self._sorts = not order or led == [name]
        """Whether the lookup gives them in the order that is asked for."""

    def page(self) -> Page:
        """A page of (id, record)."""
        if self._sorts:
            return Page(list(self), self.after)
        if self.after is not None:
            raise InvalidInputError(
                f"pages in this order need an index: entities.index({self._name!r})"
            )
        every = [(pair_of(self._name, one.properties.get(self._name)), id, one) for id, one in self]
        have = [one for one in every if one[0] is not None]
        if every and not have:
            raise InvalidInputError(
                f"none of these entities has a property {self._name!r} to be sorted by"
            )
        have.sort(key=lambda one: one[:2], reverse=self._down)
        return Page([one[1:] for one in have[: self._limit]], None)

    def __iter__(self) -> Iterator[tuple[str, EntityRecord]]:
        """What fits; refused where nearly all that is read, or all that must be sorted here, is in
        vain."""
        order = ("-value" if self._down else "value") if self._name and self._sorts else None
        left = self._limit if self._sorts else None
        vain = 0
        while left is None or left > 0:
            # A page is never larger than what is still wanted, so that it is used up to its end.
            some = min(1000, left if left is not None else 1000)
            page = self._entities._entities.find(
                self._lookup, self._asked, order=order, limit=some, after=self.after
            )
            for id, record in page.items:
                fit = all(fits(record.properties, *one) for one in self._where.items())
                vain += not (fit and self._sorts)
                if vain > MOST_SCANNED:
                    names = sorted(name for name in {*self._where, self._name} if name) or ["NAME"]
                    lines = ", ".join(f"entities.index({name!r})" for name in names)
                    raise LimitExceededError(
                        f"{self._entities._scope}: this would read more than {MOST_SCANNED} "
                        f"entities; say once: {lines}, and give the type"
                    )
                if fit:
                    left = left - 1 if left is not None else None
                    yield id, record
            self.after = page.after
            if page.after is None:
                return


class _Present(Range):
    """Any value that is there and can be sorted by."""

    def __init__(self) -> None:
        object.__setattr__(self, "bounds", ("1", "9"))


def fits(properties: Mapping[str, Any], name: str, condition: Any) -> bool:
    """Whether a property is what is asked for; types count."""
    value = properties.get(name)
    if not isinstance(condition, Range | Begins):
        return alike(value, condition)
    low, high = condition.bounds
    term = encode_term(value) if value is not None else None
    return term is not None and low <= term < high


def alike(one: Any, other: Any) -> bool:
    """Whether two values are equal with all their types, also those of what is in them."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    term = encode_term(one)
    return term == encode_term(other) if term is not None else bool(one == other)


def _drawn(type: str) -> str:
    """An id that is most likely free. Not of `secrets`: that gives way to other threads."""
    return f"{type}_{_random.getrandbits(32):08x}"


def is_subscription(entities: Entities, id: str) -> bool:
    """Whether an id is that of a subscription; those are `sub_` and more."""
    found = entities._entities.get(id) if id.startswith("sub_") else None
    return found is not None and found.type == SUBSCRIPTION


def check_id(id: Any, what: str = "the id of an entity") -> str:
    """An id that is part of a key, if it can be one; an entity's own."""
    text = check_name(id.id if isinstance(id, Entity) else id, what, 200)
    if ".." in text or "\\" in text:
        raise InvalidInputError(f"{what} has no '..' and no backslash")
    return text


def _checked(properties: Any, what: str = "properties") -> dict[str, Any]:
    """Properties by their names."""
    given = by_name(properties, what)
    for name in given:
        check_name(name, "the name of a property")
    return given


def _included(include: Iterable[str]) -> set[str]:
    wanted = set(listed(include, "include"))
    if not wanted <= INCLUDE:
        raise InvalidInputError("include takes properties and relationships")
    return wanted


def _index_name(name: str) -> str:
    return f"entity by {name}"
