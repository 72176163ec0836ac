"""The style and the layers of src/holdfast, held by checks.

Each check is a function from source text to findings. The tests at the end run them over the
project; the table `BAD` shows each of them something that it must find.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.cli.command import home_of
from holdfast.cli.main import HOMES

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"

MAX_FUNCTION = 60
MAX_FILE = 900
MIN_FILE = 60
MAX_BASES = 3

# Lowest first. A part may import parts of lower layers, itself, and leaves.
LAYERS = (
    ("storage",),
    ("seal",),
    ("store",),
    ("checkpoints", "schemas", "hooks", "access"),
    ("agents", "replicas", "backup"),
    ("recovery", "runtime", "monitor"),  # of all that agents do
    ("", "sync", "testing"),  # what users import; "" is holdfast/__init__.py
    ("server", "integrations", "scripting"),
    ("cli",),  # has commands for integrations, too
    ("__main__",),
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
FACADE = LEVEL[""]
LEAF = -1  # any other module at the top, such as errors.py

# Inside the store, lowest first; types count. Leases stand below what commits: they are cells that
# know nothing of changes, and every change may expect one. What lies in `store` itself is the top.
FLOORS = (
    "names", "tree", "journal", "lease", "rules", "commit", "read", "history", "long", "upkeep",
    "proof",
)  # fmt: skip
FLOOR = {name: level for level, name in enumerate(FLOORS)}
TOP = len(FLOORS)
STORE = "holdfast.store."

Sources = Mapping[str, str]  # module name -> text; a package has the name of its folder


# ---- reading -------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def project() -> tuple[dict[str, str], set[str]]:
    """Every module's text, and which of the modules are packages."""
    # holdfast_verify.py is a program of its own, in one file, that imports nothing of holdfast.
    files = [SRC / "holdfast_verify.py", *(SRC / "holdfast").rglob("*.py")]
    paths = {module_name(path): path for path in sorted(files)}
    packages = {name for name, path in paths.items() if path.name == "__init__.py"}
    return {name: path.read_text() for name, path in paths.items()}, packages


def absolute(name: str | None, level: int, module: str, is_package: bool) -> str:
    if level == 0:
        return name or ""
    base = module.split(".")
    base = base[: len(base) - level + is_package]
    return ".".join([*base, name] if name else base)


def imports(source: str, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that is imported, also inside functions and by name.

    `from a import b` gives `a.b`: whether `b` is a module is for the caller to know.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node.module, node.level, module, is_package)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    bare = name.lstrip(".")
                    level = len(name) - len(bare)
                    yield node.lineno, absolute(bare, level, module, is_package)


def mentions(source: str) -> Iterator[str]:
    """Strings that look like `holdfast.part.module` or `holdfast.part.module:name`."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (match := re.fullmatch(r"(holdfast(?:\.\w+)+)(?::\w+)?", node.value))
        ):
            yield match[1]


# ---- checks of one text --------------------------------------------------------------------


def long_functions(source: str) -> list[str]:
    return [
        f"{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION
    ]


def long_file(source: str) -> list[str]:
    length = len(source.splitlines())
    return [f"{length} lines, at most {MAX_FILE}"] if length > MAX_FILE else []


# Written so that the patterns do not match themselves.
UNDONE = re.compile(r"\b(?:TO[D]O|FIX[M]E|NotImplemente[d]Error)\b")
PATHS = re.compile(r"/(?:wor[k]|roo[t]|hom[e]|User[s])/")


def undone(source: str) -> list[str]:
    return lines_with(UNDONE, source)


def machine_paths(source: str) -> list[str]:
    return lines_with(PATHS, source)


def short_file(source: str) -> list[str]:
    """A file with hardly anything in it is a part of another one."""
    length = len(source.splitlines())
    return [f"{length} lines, at least {MIN_FILE}"] if length < MIN_FILE else []


CATCHES = re.compile(r"\b(?:Conflict|Damaged\w*|StateIntegrityError|BaseException)\b")
LOCKS = re.compile(r"(?:threading|asyncio)\.(?:R?Lock|Condition|(?:Bounded)?Semaphore)")


def unexplained_handlers(source: str) -> list[str]:
    """Handlers of a conflict, of damage or of everything, where no comment says why: on the line
    before, on theirs, or up to their first statement. What is suppressed is handled, too."""
    lines, found = source.splitlines(), list[tuple[int, int, str]]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            found.append((node.lineno, node.body[0].lineno, ast.unparse(node.type)))
        elif isinstance(node, ast.With):
            for call in (item.context_expr for item in node.items):
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress"):
                    found.append((node.lineno, node.body[0].lineno, ast.unparse(call)))
    return [
        f"{first}: it does not say why it catches {what}"
        for first, last, what in found
        if CATCHES.search(what) and not any("#" in line for line in lines[max(first - 2, 0) : last])
    ]


def unexplained_errors(source: str) -> list[str]:
    """Names for several of these errors that do not say what they have in common: handlers of such
    a name may be without a comment."""
    body = ast.parse(source).body
    return [
        f"{node.lineno}: it does not say what these errors have in common"
        for node, then in zip(body, [*body[1:], None], strict=True)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and all(isinstance(one, ast.Name | ast.Starred) for one in node.value.elts)
        and CATCHES.search(ast.unparse(node.value))
        and not (isinstance(then, ast.Expr) and isinstance(then.value, ast.Constant))
    ]


def unexplained_locks(source: str) -> list[str]:
    """Locks of which nothing says what they keep together, or whom they keep waiting: a comment on
    the line or the one before, or a docstring behind it."""
    lines = ["", *source.splitlines(), ""]
    return [
        f"{node.lineno}: it does not say what the lock is for"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and LOCKS.fullmatch(ast.unparse(node.func))
        and "#" not in lines[node.lineno - 1] + lines[node.lineno]
        and '"""' not in lines[node.lineno + 1]
    ]


def many_bases(source: str) -> list[str]:
    return [
        f"{node.lineno}: {node.name} has {len(node.bases)} bases, at most {MAX_BASES}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and len(node.bases) > MAX_BASES
    ]


def lines_with(pattern: re.Pattern[str], source: str) -> list[str]:
    lines = enumerate(source.splitlines(), 1)
    return [f"{number}: {match[0]}" for number, line in lines if (match := pattern.search(line))]


def without_docstring(source: str) -> list[str]:
    """Public functions and classes of the module. Methods are the class's own business: an
    engine need not explain again what the contract says."""
    return [
        f"{node.lineno}: {node.name} has no docstring"
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not is_overload(node)
    ]


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(ast.unparse(mark).endswith("overload") for mark in node.decorator_list)


def unsorted_exports(source: str) -> list[str]:
    """`__all__` is a plain list, there, and in the order that the linter gives it, too:
    CONSTANTS, Classes, functions."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            if len(set(names)) < len(names):
                return ["__all__ names something twice"]
            wanted = sorted(names, key=lambda name: (kind_of_name(name), name))
            return [] if list(names) == wanted else [f"__all__ is not sorted, want {wanted}"]
    return ["no __all__"]


def kind_of_name(name: str) -> int:
    if name.isupper() and len(name) > 1:
        return 0
    return 1 if name[0].isupper() else 2


def error_tree(source: str) -> list[str]:
    """The tree drawn in the docstring against the classes: same names, same parents."""
    tree = ast.parse(source)
    drawn = drawn_tree(ast.get_docstring(tree, clean=False) or "")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    real = {
        name: next((ast.unparse(b) for b in node.bases if ast.unparse(b) in classes), None)
        for name, node in classes.items()
    }
    findings = [f"{name} is not drawn" for name in real if name not in drawn]
    findings += [f"{name} is drawn but no class" for name in drawn if name not in real]
    return findings + [
        f"{name} is drawn under {drawn[name]} but derives from {real[name]}"
        for name in real
        if name in drawn and drawn[name] != real[name]
    ]


def drawn_tree(text: str) -> dict[str, str | None]:
    """Name -> parent, from lines such as `    │   ├── Name     what it is`."""
    above: list[str] = []
    parents: dict[str, str | None] = {}
    for line in text.splitlines():
        if match := re.match(r"    ((?:│   |    )*(?:├── |└── )|(?=\w))(\w+)(?:  |$)", line):
            depth = len(match[1]) // 4
            if depth > len(above):
                parents[match[2]] = "nothing, for it is drawn too deep"
                continue
            above[depth:] = [match[2]]
            parents[match[2]] = above[depth - 1] if depth else None
    return parents


# ---- checks of all texts together ----------------------------------------------------------


def upward_imports(sources: Sources, packages: set[str]) -> list[str]:
    findings = []
    for module, source in sources.items():
        part = part_of(module, sources)
        for line, name in imports(source, module, module in packages):
            if name.split(".")[0] == "holdfast":
                target = part_of(name, sources)
                if not may_import(part, target):
                    findings.append(f"{module}:{line} imports {name}")
    return findings


def part_of(name: str, sources: Sources) -> str:
    """`store` for `holdfast.store.tree.tree`; "" for what only holdfast/__init__.py can give."""
    part = [*name.split("."), ""][1]
    is_module = part in LEVEL or any(
        f"{other}.".startswith(f"holdfast.{part}.") for other in sources
    )
    return part if is_module else ""


def may_import(part: str, target: str) -> bool:
    mine, theirs = LEVEL.get(part, LEAF), LEVEL.get(target, LEAF)
    sideways = mine == theirs and mine in (FACADE, LEAF)
    return theirs < mine or part == target or sideways


def floor_of(name: str) -> int | None:
    """On which floor of the store a module, or what is imported from it, lies; None outside."""
    parts = name.split(".")
    if parts[:2] != ["holdfast", "store"]:
        return None
    if any(part.endswith("_async") for part in parts[2:4]):  # faces, wherever they lie
        return TOP
    return FLOOR.get(parts[2], TOP) if len(parts) > 2 else TOP


def upward_floors(sources: Sources, packages: set[str]) -> list[str]:
    """Imports inside the store that point up, types and those inside functions included."""
    findings = []
    for module, source in sources.items():
        floor = floor_of(module)
        for line, name in imports(source, module, module in packages):
            target = floor_of(name)
            if floor is not None and target is not None and target > floor:
                findings.append(f"{module}:{line} imports {name}")
    return findings


def cycles(sources: Sources, packages: set[str]) -> list[set[str]]:
    """Modules of the store that import each other in a circle, types included."""
    mine = {name for name in sources if floor_of(name) is not None and name not in packages}
    leads = dict[str, set[str]]()
    for module in mine:
        names = {name for _, name in imports(sources[module], module)}
        leads[module] = mine & (names | {name.rpartition(".")[0] for name in names})
    reached = {module: reach(leads, module) for module in mine}
    rings = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in mine
        if module in reached[module]
    }
    return sorted(map(set, rings), key=sorted)


def reach(leads: Mapping[str, set[str]], start: str) -> set[str]:
    found, waiting = set[str](), list(leads[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += leads[module]
    return found


NOUNS = ("keyring", "ring", "testing")


def bad_names(sources: Sources, packages: set[str]) -> list[str]:
    """Modules that are named after doing something, and names that two modules have.

    Commands are named after what they are about, and each engine has the same parts.
    """
    parts = re.compile(r"holdfast\.(cli(\.commands)?|storage\.\w+)\.\w+")
    modules = [name for name in sources if name not in packages and not parts.fullmatch(name)]
    places = dict[str, list[str]]()
    for name in modules:
        places.setdefault(name.rpartition(".")[2], []).append(name)
    doing = [
        f"{name} is named after doing something; take a noun"
        for name in sources
        if name.endswith("ing") and name.rpartition(".")[2] not in NOUNS
    ]
    return doing + [
        f"{' and '.join(found)} have one name"
        for name, found in sorted(places.items())
        if len(found) > 1 and not name.startswith("__")
    ]


def dead_modules(sources: Sources, packages: set[str], roots: set[str]) -> list[str]:
    """Modules that nothing reaches, and roots that are not there."""
    alive: set[str] = set()
    waiting = [root for root in roots if root in sources]
    while waiting:
        module = waiting.pop()
        if module in alive:
            continue
        alive.add(module)
        names = {name for _, name in imports(sources[module], module, module in packages)}
        # Importing a.b.c runs a and a.b too; of `from a.b import c`, c may be no module.
        for name in names | set(mentions(sources[module])) | {module}:
            pieces = name.split(".")
            heads = (".".join(pieces[:end]) for end in range(1, len(pieces) + 1))
            waiting += [head for head in heads if head in sources]
    missing = [f"{root} is an entry point but does not exist" for root in roots - set(sources)]
    return missing + [
        f"{module} is imported by nothing" for module in sources if module not in alive
    ]


def entry_points(pyproject: str) -> set[str]:
    table = tomllib.loads(pyproject)["project"]
    groups = [table.get("scripts", {}), *table.get("entry-points", {}).values()]
    return {value.split(":")[0] for group in groups for value in group.values()}


# ---- checks of imported modules ------------------------------------------------------------


def broken_exports(module: ModuleType) -> list[str]:
    findings = []
    for name in module.__all__:
        if not hasattr(module, name):
            findings.append(f"{module.__name__}.{name} does not resolve")
        elif not documented(module, name):
            findings.append(f"{module.__name__}.{name} has no docstring")
    return findings


def documented(module: ModuleType, name: str) -> bool:
    """By a docstring of its own; a constant, which has none, by its name in the module's."""
    thing = getattr(module, name)
    if inspect.isclass(thing):
        return bool(vars(thing).get("__doc__"))
    if inspect.isroutine(thing) or inspect.ismodule(thing):
        return bool(thing.__doc__)
    return name == "__version__" or bool(re.search(rf"\b{name}\b", module.__doc__ or ""))


# ---- the project ---------------------------------------------------------------------------

# Circles that are left, in one package each. What they are, and what would end them:
CYCLES: list[set[str]] = [
    {"commit.change", "commit.group"},  # a change, and of whom it is asked
]  # fmt: skip
EACH: list[Callable[[str], list[str]]] = [
    long_functions,
    long_file,
    unexplained_handlers,
    unexplained_errors,
    unexplained_locks,
    undone,
    machine_paths,
    many_bases,
    without_docstring,
]


@pytest.mark.parametrize("check", EACH, ids=lambda check: check.__name__)
def test_every_module(check: Callable[[str], list[str]]) -> None:
    sources, _ = project()
    assert sources
    # All errors are one tree, drawn at the top of one file: a class each, whatever that comes to.
    whole = {"holdfast.errors"} if check is long_file else set()
    some = sources.keys() - whole
    assert [f"{name}:{found}" for name in some for found in check(sources[name])] == []


def test_no_file_is_a_part_of_another() -> None:
    sources, packages = project()
    alone = set(sources) - packages - {"holdfast.__main__"}
    assert [f"{name}:{found}" for name in alone for found in short_file(sources[name])] == []


# What packages above may import of the store: its public classes, its words, and the one door.
DOORS = ("inner", "names", "open", "state", "state_async", "store", "store_async")
# Homonyms: another thing of the same name goes through the door.
BESIDE_THE_DOOR = {
    "holdfast.store.read.points.DELETED",
    "holdfast.store.rules.classes.sensitive",
}
UNDER = ("storage", "seal", "store", "exports", "errors", "", "sync")


def ways_into_the_store(sources: Sources, packages: set[str]) -> list[str]:
    """Imports from above that pass by `store.inner`, and private handles that are taken."""
    findings = []
    for name, text in sources.items():
        if [*name.split("."), ""][1] in UNDER or not name.startswith("holdfast"):
            continue
        for line, what in imports(text, name, name in packages):
            parts = what.split(".")
            inside = parts[:2] == ["holdfast", "store"] and len(parts) > 2
            if inside and parts[2] not in DOORS and what not in BESIDE_THE_DOOR:
                findings.append(f"{name}:{line}: {what}")
        findings += [f"{name}:{found}" for found in lines_with(PRIVATE, text)]
    return findings


PRIVATE = re.compile(r"\b(?:store|state|other|fork|agent)\._(?:handle|core)\b")


def test_packages_above_use_the_door_of_the_store() -> None:
    assert ways_into_the_store(*project()) == []
    bad = {
        "holdfast.agents.x": "from holdfast.store.commit.stage import Stage\nstate._handle.core",
        "holdfast.recovery.y": "from holdfast.store.inner import Stage\nself._handle",
    }
    assert len(ways_into_the_store(bad, set())) == 2


# What the store itself keeps in a scope; all else below `$` is of features, which declare it.
OWN_KEYS = ("$declared", "$lookup", "$terms", "$told")
FEATURE_KEY = re.compile(r"""["'`](\$[a-z]+)(?=["'`/])""")
TAGS = "holdfast.store.tree.json_values"  # in which `$` marks what plain JSON has no word for


def features_in_the_store(sources: Sources) -> list[str]:
    """Keys of features that the store names, in code or in words: it reads them from `Owned`."""
    return [
        f"{name}:{number}: {found}"
        for name, text in sources.items()
        if name.startswith("holdfast.store.") and name != TAGS
        for number, line in enumerate(text.splitlines(), 1)
        for found in FEATURE_KEY.findall(line)
        if found not in OWN_KEYS
    ]


def test_the_store_knows_no_feature() -> None:
    assert features_in_the_store(project()[0]) == []
    bad = {"holdfast.store.x": 'A = "$effects/"\nB = "$declared/"', "holdfast.agents.y": '"$z/"'}
    assert features_in_the_store(bad) == ["holdfast.store.x:1: $effects"]
    assert features_in_the_store({"holdfast.store.x": 'A = "$recovery"'}) != []


def test_glossaries_name_modules_that_exist() -> None:
    sources, packages = project()
    for name in packages:
        text = ast.get_docstring(ast.parse(sources[name])) or ""
        for said in re.findall(r"`([a-z]+(?:[._][a-z]+)+)`", text):
            homes = {f"{name}.{said}", f"holdfast.{said}", said}
            known = homes & set(sources) or said in vars(importlib.import_module(name))
            assert known, f"{name}: there is no module `{said}`"


def test_imports_point_down() -> None:
    assert upward_imports(*project()) == []


def test_imports_inside_the_store_point_down() -> None:
    assert upward_floors(*project()) == []


def test_no_cycle_inside_the_store() -> None:
    sources, packages = project()
    found = [{name.removeprefix(STORE) for name in ring} for ring in cycles(sources, packages)]
    assert [ring for ring in found if not any(ring <= known for known in CYCLES)] == []
    assert [known for known in CYCLES if not any(ring <= known for ring in found)] == [], "gone"


def test_names_of_modules() -> None:
    assert bad_names(*project()) == []


def test_no_dead_module() -> None:
    sources, packages = project()
    roots = entry_points((ROOT / "pyproject.toml").read_text())
    roots |= {"holdfast", "holdfast.cli.main", "holdfast.testing"}
    roots |= {"holdfast.__main__"} & set(sources)
    roots |= set(map(home_of, HOMES.values()))
    # A user imports an integration by its name; nothing of the project does.
    roots |= {name for name in packages if name.startswith("holdfast.integrations.")}
    assert dead_modules(sources, packages, roots) == []


def test_error_tree_is_drawn() -> None:
    assert error_tree((SRC / "holdfast" / "errors.py").read_text()) == []


@pytest.mark.parametrize("name", ["holdfast", "holdfast.sync"])
def test_exports(name: str) -> None:
    sources, _ = project()
    assert name in sources
    assert unsorted_exports(sources[name]) == []
    assert broken_exports(importlib.import_module(name)) == []


def test_project_files_name_no_machine() -> None:
    files = ["pyproject.toml", "Makefile", "scripts/setup", "requirements.lock", "uv.lock"]
    texts = {name: (ROOT / name).read_text() for name in files}
    assert [f"{name}:{found}" for name in texts for found in machine_paths(texts[name])] == []


# ---- every check can fail ------------------------------------------------------------------

TREE = '''"""Errors.

    Base
    ├── One          of a kind
    │   └── Inner
    └── Two
"""
class Base(Exception): ...
class One(Base): ...
class Inner(One): ...
class Two(Base): ...
'''

TRY = "try:\n    do()\nexcept "

# check, a text in which it finds something, and nearly the same text in which it finds nothing
BAD: list[tuple[Callable[[str], list[str]], str, str]] = [
    (long_functions, "def f():\n" + "    x = 1\n" * 60, "def f():\n" + "    x = 1\n" * 59),
    (long_functions, "class A:\n async def f():\n" + "  x = 1\n" * 60, "x = 1\n" * 99),
    (long_file, "x = 1\n" * 901, "x = 1\n" * 900),
    (short_file, "x = 1\n" * 59, "x = 1\n" * 60),
    (many_bases, "class A(B, C, D, E): ...", "class A(B, C, D): ..."),
    (unexplained_handlers, f"{TRY}Conflict:\n    pass", f"{TRY}Conflict:  # why\n    pass"),
    (unexplained_handlers, f"{TRY}(A, DamagedRowError):\n    pass", f"{TRY}A:\n    pass"),
    (unexplained_handlers, f"{TRY}BaseException:\n    raise", f"{TRY}A:\n    # why\n    raise"),
    (unexplained_handlers, "with suppress(Conflict):\n    do()", "with suppress(A):\n    do()"),
    (unexplained_errors, "A = (Conflict, B)", "A = (Conflict, B)\n'In vain.'"),
    (unexplained_locks, "a = threading.Lock()\nb = 1", "a = threading.Lock()  # of both"),
    (unexplained_locks, "a = asyncio.Lock()", 'a = asyncio.Lock()\n"""Of both."""'),
    (undone, "x = 1  # TO" + "DO: more", "x = 1  # to do so is wise"),
    (undone, "raise NotImplemented" + "Error", "return NotImplemented"),
    (machine_paths, "x = '/wor" + "k/main'", "x = 'work/main'"),
    (machine_paths, "x = '/hom" + "e/me'", "x = '~/me'"),
    (without_docstring, "def f(): ...", "def f():\n    'Does.'"),
    (without_docstring, "class A: ...", "class _A: ..."),
    (without_docstring, "async def f(): ...", "@overload\ndef f(): ..."),
    (unsorted_exports, "__all__ = ['b', 'a']", "__all__ = ['a', 'b']"),
    (unsorted_exports, "__all__ = ['a', 'B', 'C_C']", "__all__ = ['C_C', 'B', 'a']"),
    (unsorted_exports, "__all__ = ['a', 'a']", "__all__ = ['a']"),
    (unsorted_exports, "", "__all__ = []"),
    (error_tree, TREE.replace("class Two(Base)", "class Two(One)"), TREE),
    (error_tree, TREE.replace("    │   └── Inner", "    ├── Inner"), TREE),
    (error_tree, TREE.replace("    │   └── Inner\n", ""), TREE),
    (error_tree, TREE.replace("class Inner(One): ...\n", ""), TREE),
    (error_tree, TREE.replace("    │   └── Inner", "    │   │   └── Inner"), TREE),
    (error_tree, "class Base(Exception): ...", TREE),
]


@pytest.mark.parametrize(("check", "bad", "good"), BAD)
def test_checks_can_fail(check: Callable[[str], list[str]], bad: str, good: str) -> None:
    assert check(bad) != []
    assert check(good) == []


UPWARD = [
    ("holdfast.storage.sqlite.engine", "from holdfast.seal import sealer"),
    ("holdfast.store.state", "import holdfast.agents.machine"),
    ("holdfast.store.state", "def f():\n    from ..checkpoints import policy"),
    ("holdfast.store.state", "from holdfast import open"),
    ("holdfast.store.state", "from holdfast import sync"),
    ("holdfast.store", "from ..cli import main"),
    ("holdfast.store.state", "importlib.import_module('holdfast.cli.main')"),
    ("holdfast.agents.machine", "from holdfast.backup import files"),
    ("holdfast.testing.faults", "from holdfast.cli import main"),
    ("holdfast.integrations.langgraph.saver", "from holdfast.cli import main"),
    ("holdfast.errors", "from holdfast.storage import contract"),
]
DOWNWARD = [
    (
        "holdfast.storage.sqlite.engine",
        "from holdfast.errors import Conflict\nfrom holdfast import clock",
    ),
    ("holdfast.store.state", "from .trees import Tree\nfrom ..storage import contract\nimport os"),
    ("holdfast.store", "from .trees import Tree\nfrom . import state"),
    ("holdfast.cli.main", "import holdfast\nfrom holdfast import sync, open"),
    ("holdfast.cli.commands.langgraph", "from holdfast.integrations.langgraph import saver"),
    ("holdfast", "from holdfast.agents.machine import Machine\nfrom . import sync"),
    ("holdfast.testing.faults", "import holdfast\nfrom holdfast.storage import contract"),
]
AROUND = {"holdfast.errors": "", "holdfast.clock": "", "holdfast.store": "", "holdfast": ""}
PACKAGES = {"holdfast", "holdfast.store"}


@pytest.mark.parametrize(("module", "source"), UPWARD)
def test_upward_import_is_found(module: str, source: str) -> None:
    assert len(upward_imports({**AROUND, module: source}, PACKAGES)) == 1


@pytest.mark.parametrize(("module", "source"), DOWNWARD)
def test_downward_import_is_allowed(module: str, source: str) -> None:
    assert upward_imports({**AROUND, module: source}, PACKAGES) == []


UPSTAIRS = [
    ("holdfast.store.names.scope", "from holdfast.store.tree.tree import Node"),
    ("holdfast.store.journal.ledger", "from holdfast.store.commit import group"),
    ("holdfast.store.journal.ledger", "if TYPE_CHECKING:\n    from ..commit.group import Core"),
    ("holdfast.store.read.reader", "def f():\n    from holdfast.store.upkeep.expiry import a"),
    ("holdfast.store.proof.verify", "import holdfast.store.state"),
    ("holdfast.store.proof.verify", "from holdfast.store import state"),
]
DOWNSTAIRS = [
    ("holdfast.store.proof.verify", "from holdfast.store.upkeep.prune import a\nimport os"),
    ("holdfast.store.commit.group", "from holdfast.store.lease import Leases"),
    ("holdfast.store.commit.group", "from .change import Change\nfrom holdfast.seal import ring"),
    ("holdfast.store.state", "from holdfast.store.proof import verify\nfrom . import store"),
    ("holdfast.agents.attached", "from holdfast.store.state import State"),
]


@pytest.mark.parametrize(("module", "source"), UPSTAIRS)
def test_import_from_a_floor_above_is_found(module: str, source: str) -> None:
    assert len(upward_floors({**AROUND, module: source}, PACKAGES)) == 1


@pytest.mark.parametrize(("module", "source"), DOWNSTAIRS)
def test_import_from_a_floor_below_is_allowed(module: str, source: str) -> None:
    assert upward_floors({**AROUND, module: source}, PACKAGES) == []


def test_cycle_is_found() -> None:
    sources = {
        "holdfast.store.a": "from holdfast.store.b import B",
        "holdfast.store.b": "from holdfast.store import c",
        "holdfast.store.c": "",
    }
    assert cycles(sources, PACKAGES) == []
    for back in ("if TYPE_CHECKING:\n    from .a import A", "def f():\n    from . import a"):
        ring = {"holdfast.store.a", "holdfast.store.b", "holdfast.store.c"}
        assert cycles({**sources, "holdfast.store.c": back}, PACKAGES) == [ring]


def test_bad_name_is_found() -> None:
    good = ["holdfast.a.lease", "holdfast.b.leases", "holdfast.b.__main__", "holdfast.__main__"]
    assert bad_names(dict.fromkeys(good, ""), PACKAGES) == []
    assert len(bad_names(dict.fromkeys([*good, "holdfast.b.lease"], ""), PACKAGES)) == 1
    assert len(bad_names(dict.fromkeys([*good, "holdfast.b.leasing"], ""), PACKAGES)) == 1
    assert len(bad_names(dict.fromkeys([*good, "holdfast.leasing"], ""), {"holdfast.leasing"})) == 1


def test_dead_module_is_found() -> None:
    sources = {
        "holdfast": "def f():\n    from .store import state",
        "holdfast.store": "ENGINES = {'a': 'holdfast.storage.a:Engine'}",
        "holdfast.store.state": "importlib.import_module('.lazy', __package__)",
        "holdfast.store.lazy": "",
        "holdfast.storage.a": "",
    }
    assert dead_modules(sources, PACKAGES, {"holdfast"}) == []
    dead = dead_modules({**sources, "holdfast.store.old": ""}, PACKAGES, {"holdfast"})
    assert dead == ["holdfast.store.old is imported by nothing"]
    assert len(dead_modules(sources, PACKAGES, {"holdfast", "holdfast.gone"})) == 1
    assert entry_points("[project.scripts]\nx = 'a.b:main'") == {"a.b"}


def test_broken_export_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sample", "LIMIT is a constant.")
    source = "def f(): 'Does.'\ndef g(): ...\nclass A(Exception): ...\nLIMIT = OTHER = 1"
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, "sample", module)
    module.__all__ = ["A", "LIMIT", "OTHER", "f", "g", "h"]
    found = [finding.split()[0] for finding in broken_exports(module)]
    assert found == ["sample.A", "sample.OTHER", "sample.g", "sample.h"]
