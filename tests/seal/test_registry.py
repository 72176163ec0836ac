"""Only registered classes are stored and built, and they come back as they were."""

from __future__ import annotations

import enum
from collections import UserDict
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any

import msgspec
import pydantic.dataclasses
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from holdfast.errors import InvalidInputError, InvalidValueError, UnknownTypeError
from holdfast.seal.codec import Codec, Typed
from holdfast.seal.registry import Registry, construct, default_registry


@dataclass
class Plain:
    a: int
    b: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    a: int


@dataclass
class Computed:
    a: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.a
        self.cache: dict[str, int] = {}


class Record(msgspec.Struct, frozen=True):
    a: int
    inner: Any = None


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = Field(alias="theA")
    b: str = "x"


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


OBJECTS = [
    Plain(1, [2]),
    Frozen(1),
    Computed(3),
    Record(1, Plain(2)),
    Model(theA=1, extra=[1]),
    Colour.RED,
    Level.HIGH,
    Rights.READ | Rights.WRITE,
    Rights(0),
]


def through(obj: Any, writer: Registry, reader: Registry) -> Any:
    codec = Codec(writer)
    return Codec(reader).decode(codec.encode(codec.plain(obj)))


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: type(obj).__name__)
def test_objects_come_back(obj: Any) -> None:
    registry = Registry()
    for cls in (Plain, Frozen, Computed, Record, Model, Colour, Level, Rights):
        registry.register(cls)
    (back,) = through([obj], registry, registry)
    assert back == obj
    assert type(back) is type(obj)


def test_what_was_stored_wins_over_what_the_constructor_computes() -> None:
    registry = Registry()
    registry.register(Computed)
    obj = Computed(3)
    obj.double = 7
    back = through(obj, registry, registry)
    assert back.double == 7
    assert back.cache == {}


def test_decorator() -> None:
    registry = Registry()

    @registry.register
    @dataclass
    class One:
        a: int

    @registry.register(name="second", version=3)
    @dataclass
    class Two:
        a: int

    one, two = registry.find(One), registry.find(Two)
    assert one is not None
    assert two is not None
    assert (one.name, one.version) == ("One", 1)
    assert (two.name, two.version) == ("second", 3)
    assert registry.find(Plain) is None
    assert default_registry.find(One) is None


def test_one_name_one_class() -> None:
    registry = Registry()
    registry.register(Plain, name="p")
    registry.register(Plain, name="p", version=2)
    with pytest.raises(InvalidInputError, match="Plain is registered as 'p'"):
        registry.register(Frozen, name="p")
    with pytest.raises(InvalidInputError, match="one name"):
        registry.register(Plain, name="q")


class Hidden(BaseModel):
    a: int = 1
    _cache: int = PrivateAttr(default=0)


@dataclass
class Needy:
    a: int
    other: InitVar[int]


class Ordinary:
    pass


@dataclass
class Listed(list[str]):
    title: str = ""


@dataclass
class Mapped(UserDict[str, int]):
    title: str = ""


@dataclass(init=False)
class Parsed:
    a: int

    def __init__(self, text: str) -> None:
        self.a = int(text)


@dataclass(init=False)
class Never:
    a: int


@pytest.mark.parametrize(
    "cls", [Hidden, Needy, Listed, Mapped, Parsed, Never, Ordinary, int, Plain(1)]
)
def test_what_cannot_be_registered(cls: Any) -> None:
    with pytest.raises(InvalidInputError):
        Registry().register(cls)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"name": name} for name in ("", "a\n", "x" * 201, 5, b"x")),
        *({"version": version} for version in (0, -1, "1", 1.5, True, None)),
        {"upgrade": 5},
    ],
    ids=str,
)
def test_names_and_versions(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Registry().register(Plain, **wrong)


def test_a_subclass_is_another_class() -> None:
    class Sub(Plain):
        pass

    registry = Registry()
    registry.register(Plain)
    with pytest.raises(InvalidValueError, match="register"):
        Codec(registry).plain(Sub(1))


def versions(new: type, **options: Any) -> tuple[Registry, Registry]:
    old, now = Registry(), Registry()
    old.register(Plain, name="plan")
    now.register(new, name="plan", version=2, **options)
    return old, now


def test_older_version_that_the_class_accepts() -> None:
    @dataclass
    class Now:
        a: int
        b: list[int]
        c: str = "new"

    assert through(Plain(1, [2]), *versions(Now)) == Now(1, [2], "new")


class Later(BaseModel):
    a: str


@pytest.mark.parametrize("new", [Frozen, Record, Later, Colour])
def test_older_version_that_the_class_refuses(new: type) -> None:
    with pytest.raises(InvalidValueError, match=r"version 1 .*version 2.*upgrade=") as caught:
        through(Plain(1, [2]), *versions(new))
    assert caught.value.__suppress_context__


def test_upgrade() -> None:
    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        assert version == 1
        return {"a": fields["a"] + len(fields["b"])}

    assert through(Plain(1, [2]), *versions(Frozen, upgrade=upgrade)) == Frozen(2)


def test_newer_version() -> None:
    old, now = versions(Frozen)
    with pytest.raises(InvalidValueError, match="update the program"):
        through(Frozen(1), now, old)


def test_errors_hold_no_values() -> None:
    registry = Registry()
    registry.register(Plain, name="plan")
    with pytest.raises(InvalidValueError) as caught:
        registry.build("plan", 1, {"hush": "hush"})
    assert "hush" not in str(caught.value)
    with pytest.raises(UnknownTypeError):
        registry.build("os.system", 1, "true")
    with pytest.raises(InvalidValueError):
        registry.build("plan", 1, [1])


def test_unset_fields_are_refused_by_path() -> None:
    registry = Registry()
    registry.register(Plain)
    obj = Plain(1)
    del obj.a
    with pytest.raises(InvalidValueError, match=r"\$\.x: .*fields"):
        Codec(registry).plain({"x": obj})


def test_older_names_lead_to_a_renamed_class() -> None:
    @dataclass
    class Plan:
        goal: str

    registry = Registry()
    registry.register(Plan, name="plan", also=["scheme", "idea"])
    for name in ("plan", "scheme", "idea"):
        assert registry.build(name, 1, {"goal": "g"}) == Plan("g")
    found = registry.find(Plan)
    assert found is not None
    assert found.name == "plan"

    @dataclass
    class Other:
        goal: str

    with pytest.raises(InvalidInputError, match="'plan'"):
        registry.register(Other, name="other", also="idea")


def test_an_upgrade_that_fails_is_told_from_a_class_that_does() -> None:
    @dataclass
    class Aim:
        aim: str

    def broken(version: int, fields: Any) -> Any:
        raise KeyError("a value that is not told")

    upgrades: list[tuple[Any, str]] = [
        (broken, "its upgrade function raised KeyError"),
        (lambda version, fields: {"nope": 1}, "look at what its upgrade function makes of it"),
    ]
    for upgrade, hint in upgrades:
        registry = Registry()
        registry.register(Aim, name="aim", version=2, upgrade=upgrade)
        with pytest.raises(InvalidValueError, match=hint) as caught:
            construct(registry.by_name("aim"), 1, {"goal": "x"})  # type: ignore[arg-type]
        assert "a value" not in str(caught.value)
        assert "register it with" not in str(caught.value)


@dataclass
class Strict:
    a: int
    inner: Any = None

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a value that is not told")


class StrictRecord(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError


class StrictModel(BaseModel):
    a: int

    def model_post_init(self, context: Any) -> None:
        if self.a < 0:
            raise ValueError


@pydantic.dataclasses.dataclass
class Validated:
    a: Annotated[int, Field(ge=0)]


@dataclass(init=False)
class OwnInit:
    a: int

    def __init__(self, a: int) -> None:
        if a < 0:
            raise ValueError
        self.a = a


@dataclass
class OwnSetting:
    a: int

    def __setattr__(self, name: str, value: Any) -> None:
        if value < 0:
            raise ValueError
        super().__setattr__(name, value)


CHECKING = [Strict, StrictRecord, StrictModel, Validated, OwnInit, OwnSetting]


@pytest.mark.parametrize("cls", CHECKING)
def test_what_its_class_would_not_build_again_is_refused(cls: Any) -> None:
    registry = Registry()
    for each in (cls, Plain):
        registry.register(each)
    codec = Codec(registry)
    obj = cls(a=1)
    assert through([Plain(1, [obj])], registry, registry) == [Plain(1, [obj])]
    obj.__dict__.update(a=-1) if hasattr(obj, "__dict__") else setattr(obj, "a", -1)
    for value, path in (([0, obj], "$[1]"), ([Plain(1, [cls(a=1), obj])], "$[0].b[1]")):
        with pytest.raises(InvalidValueError, match="cannot be built from the fields") as refused:
            codec.plain(value)
        assert refused.value.path == path
        assert "a value" not in str(refused.value)


def test_building_on_trial_leaves_the_object_alone() -> None:
    @dataclass
    class Noted:
        notes: list[str]

        def __post_init__(self) -> None:
            self.notes.append("made")

    registry = Registry()
    registry.register(Noted)
    obj = Noted([])
    Codec(registry).plain(obj)
    assert obj.notes == ["made"]


def test_an_object_may_hold_a_plain_form_of_a_class_that_others_know() -> None:
    registry = Registry()
    registry.register(Strict)
    assert Codec(registry).plain(Strict(1, Typed("theirs", 1, {})))


class Aliased(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = Field(1, alias="b")


def test_an_extra_field_that_is_named_like_another_is_refused() -> None:
    registry = Registry()
    registry.register(Aliased)
    codec = Codec(registry)
    clash = Aliased(b=2)
    clash.b = 7  # type: ignore[attr-defined]
    for one in (Aliased(b=2, a=7), clash):
        with pytest.raises(
            InvalidValueError, match=r"extra field '[ab]'.*would be lost"
        ) as refused:
            codec.plain({"k": [one]})
        assert refused.value.path == "$.k[0]"
    assert codec.plain(Aliased(b=2, c=3))  # type: ignore[call-arg]
