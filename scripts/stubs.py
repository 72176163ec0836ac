#!/usr/bin/env python3
"""Writes the types of the async classes, which are made when the program runs: `__init__.pyi`.

    scripts/stubs.py            write them
    scripts/stubs.py --check    only tell which are stale

Each part of the public face gets one (see `holdfast.exports`). What has one face only, or an async
one by hand, is imported in it from where it is. Of a class or function with two, the async one is
written out from the source of the blocking one: its docstrings, its signatures with async classes
in the place of blocking ones, and `async def` where the mark says so. So are those that async
classes by hand inherit (`holdfast.store.made`). Parts of `holdfast.sync`, which are modules without
a file, get one that imports the blocking ones; so does the door of the store (`store.inner`).
"""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
sys.path.insert(0, str(SRC))

from holdfast.exports import PARTS  # noqa: E402
from holdfast.store.names.face import (  # noqa: E402
    DEFAULT,
    PASSED,
    Way,
    asynchronous,
    is_block,
)

MODULES = ("errors", "sync", *PARTS)
"""What `import holdfast` gives beside classes and functions."""
HEAD = "# Written by scripts/stubs.py from the blocking classes; not to be edited.\n"

MADE = "holdfast.store.made"
INNER = "holdfast.store.inner"
BASES = {
    "MadeChangePart": ("holdfast.store.read.change_block", "ScopedChange"),
    "MadeView": ("holdfast.store.state", "View"),
    "MadeState": ("holdfast.store.state", "State"),
    "MadeStore": ("holdfast.store.store", "Store"),
}
"""What async classes by hand inherit, and of what it is made."""
INSTEAD = {
    ("holdfast.store.read.change_block", "ScopedChange"): "holdfast.store.state_async:ChangePart",
    ("holdfast.store.long", "ReadFile"): "holdfast.store.state_async:ReadStream",
    ("holdfast.store.long", "WriteFile"): "holdfast.store.state_async:WriteStream",
}
"""What methods by hand give in the place of what the blocking ones give."""

Target = tuple[str, str]
"""A module and a name in it; "" for the module itself."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


# ---- sources -------------------------------------------------------------------------------


class Source:
    """A module as text: what its names stand for."""

    def __init__(self, name: str) -> None:
        self.name = name
        path = SRC / Path(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.tree = ast.parse(path.read_text())
        self.targets: dict[str, Target] = {}
        self._read(self.tree.body)

    def _read(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Import):
                for one in node.names:
                    self.targets[one.asname or one.name] = (one.name, "")
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None
                for one in node.names:
                    self.targets[one.asname or one.name] = (node.module, one.name)
            elif isinstance(node, ast.If):  # for types only
                self._read(node.body)
            elif isinstance(node, ast.ClassDef | ast.FunctionDef):
                self.targets[node.name] = (self.name, node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                named = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in named:
                    if isinstance(target, ast.Name):
                        self.targets[target.id] = (self.name, target.id)

    def find(self, name: str) -> ast.ClassDef | Function:
        """A class or function of the module."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return node
        raise LookupError(f"{self.name} has no {name}")


source = cache(Source)


@cache
def is_module(name: str) -> bool:
    path = SRC / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


@cache
def tables() -> dict[str, dict[str, Target]]:
    """The parts of the async face, and where what each of them exports is written."""
    return {part: _table(part) for part in ("holdfast", *(f"holdfast.{one}" for one in PARTS))}


def _table(part: str) -> dict[str, Target]:
    module = import_module(part)
    found: dict[str, Target] = {}
    for table in (getattr(module, "HOMES", {}), getattr(module, "ASYNC", {})):
        found |= {name: (home, name) for home, names in table.items() for name in names.split()}
    rest = [name for name in module.__all__ if name not in found and name not in MODULES]
    if not found:  # imported as in any module: it needs no stub
        return {}
    return {name: found[name] for name in module.__all__ if name in found} | {
        name: (getattr(module, name).__module__, name) for name in rest
    }


@cache
def homes() -> dict[Target, Target]:
    """The parts that async classes and functions are imported from, by their blocking ones."""
    return {
        target: (part, name)
        for part, table in tables().items()
        for name, target in table.items()
        if is_faced(target)
    }


def is_faced(target: Target) -> bool:
    """Whether what a table names has two faces."""
    found = getattr(import_module(target[0]), target[1])
    return asynchronous(found) is not found


# ---- one stub ------------------------------------------------------------------------------


class Stub:
    """The text of a part's stub."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.table = tables().get(part, {})
        self._names: dict[str, Target] = {}
        """What the stub's own names stand for; others import what they need beside them."""
        self._imports: set[str] = set()
        self._aliases: list[str] = []
        for name, target in self.table.items():
            by_hand = _by_hand(*target)
            if is_faced(target) and by_hand is None:
                self._names[name] = (part, name)
                continue
            self._names[name] = module, attribute = by_hand or target
            if attribute == name:
                self._imports.add(f"from {module} import {attribute} as {name}")
            else:  # a name that is another there would not be exported
                self._imports.add(f"from {module} import {attribute}")
                self._aliases.append(f"{name} = {attribute}")

    def text(self) -> str:
        """All of it, in the form that ruff gives it."""
        body = list(self._aliases)
        for name, (module, attribute) in self.table.items():
            if self._names[name] != (self.part, name):
                continue
            node = source(module).find(attribute)
            found = getattr(import_module(module), attribute)
            if isinstance(node, ast.ClassDef):
                body.append(self._class(node, found))
            else:
                body.append(self._function(node, found, source(module), method=False))
        if self.part == "holdfast":
            self._imports |= {f"from holdfast import {one} as {one}" for one in MODULES}
            body = ["__version__: str", *body]
        return _formatted("\n".join([HEAD, *sorted(self._imports), "", *body]))

    # names

    def _named(self, target: Target) -> str:
        """How the stub calls something, which it imports if it has to."""
        module, name = target
        if name and is_module(f"{module}.{name}"):
            module, name = f"{module}.{name}", ""
        if not name:
            self._imports.add(f"import {module}")
            return module
        if (by_hand := _by_hand(module, name)) is not None:
            module, name = by_hand
        elif (module, name) in homes():
            module, name = homes()[module, name]
        alias, number = name, 1
        while alias in self._names and self._names[alias] != (module, name):
            number += 1
            alias = f"_{name}{number}"
        if alias not in self._names:
            self._names[alias] = (module, name)
            renamed = f" as {alias}" if alias != name else ""
            self._imports.add(f"from {module} import {name}{renamed}")
        return alias

    def _type(self, node: ast.expr | None, where: Source) -> str:
        """An annotation, with the async classes in the place of the blocking ones."""
        if node is None:
            return self._named(("typing", "Any"))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        return ast.unparse(
            _Renamed(self, where).visit(ast.parse(ast.unparse(node), mode="eval").body)
        )

    # members

    def bases(self) -> str:
        """Of `holdfast.store.made`: what classes by hand inherit."""
        body = []
        for name, (module, attribute) in BASES.items():
            node, found = source(module).find(attribute), getattr(import_module(module), attribute)
            assert isinstance(node, ast.ClassDef)
            body.append(self._class(node, found, name))
        return _formatted("\n".join([HEAD, *sorted(self._imports), "", *body]))

    def _class(self, node: ast.ClassDef, found: Any, name: str = "") -> str:
        bases = [base for base in found.__mro__[1:] if asynchronous(base) is not base]
        above = [(base.__module__, base.__name__) for base in bases]
        inherits = f"({self._named(above[0])})" if bases else ""
        if name and bases:  # itself a base of what is by hand
            inherits = f"({next(one for one, of in BASES.items() if of == above[0])})"
        lines = [f"class {name or node.name}{inherits}:", _indented(_doc(node))]
        done: set[str] = set()
        for base in found.__mro__:
            if base is object or (base in bases) or not base.__module__.startswith("holdfast"):
                continue
            where = source(base.__module__)
            of = where.find(base.__name__)
            assert isinstance(of, ast.ClassDef)
            for one in self._members(of, base, where):
                name, text = one
                if name not in done:
                    lines.append(_indented(text))
            done |= {name for name, _ in self._members(of, base, where)}
        return "\n".join(line for line in lines if line.strip())

    def _members(self, node: ast.ClassDef, found: Any, where: Source) -> list[tuple[str, str]]:
        members: list[tuple[str, str]] = []
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                if not one.target.id.startswith("_"):
                    members.append(
                        (one.target.id, f"{one.target.id}: {self._type(one.annotation, where)}")
                    )
            elif isinstance(one, ast.FunctionDef):
                text = self._member(one, found, where)
                if text:
                    members.append((one.name, text))
                if one.name == "__init__":
                    members += self._attributes(one, where)
        return members

    def _attributes(self, node: ast.FunctionDef, where: Source) -> list[tuple[str, str]]:
        """Public attributes that `__init__` sets: annotated there, or given as an argument."""
        given = {one.arg: one.annotation for one in (*node.args.args, *node.args.kwonlyargs)}
        members = []
        for one in ast.walk(node):
            target: ast.expr | None = one.target if isinstance(one, ast.AnnAssign) else None
            kind = one.annotation if isinstance(one, ast.AnnAssign) else None
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Name):
                target, kind = one.targets[0], given.get(one.value.id)
            if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
                members.append((target.attr, f"{target.attr}: {self._type(kind, where)}"))
        return members

    def _member(self, node: ast.FunctionDef, found: Any, where: Source) -> str:
        returns = node.returns
        if isinstance(returns, ast.Subscript) and hasattr(vars(found)[node.name], "__steps__"):
            returns = returns.slice
        if node.name == "__enter__":
            return f"async def __aenter__(self) -> {self._type(returns, where)}: ..."
        if node.name == "__next__":
            return f"async def __anext__(self) -> {self._type(returns, where)}: ..."
        if node.name == "__iter__" and hasattr(found, "__next__"):
            return f"def __aiter__(self) -> {self._type(returns, where)}: ..."
        if node.name == "__exit__":
            kinds = [
                "type[BaseException]",
                "BaseException",
                self._named(("types", "TracebackType")),
            ]
            given = ", ".join(
                f"{name}: {kind} | None"
                for name, kind in zip(("kind", "error", "trace"), kinds, strict=True)
            )
            return f"async def __aexit__(self, {given}) -> {self._type(returns, where)}: ..."
        if node.name.startswith("_") and node.name not in PASSED and node.name != "__init__":
            return ""
        member = vars(found)[node.name]
        if isinstance(member, property):
            names = [ast.unparse(one) for one in node.decorator_list]
            kind = self._type(node.returns, where)
            text = f"def {node.name}({self._arguments(node, where)}) -> {kind}:"
            return f"@{names[0]}\n{text}\n{_indented(_doc(node) or '...')}"
        function = getattr(member, "__func__", member)
        method = not isinstance(member, classmethod | staticmethod)
        text = self._function(node, function, where, method=method)
        return text if method else f"@staticmethod\n{text}"

    def _function(self, node: Any, found: Any, where: Source, *, method: bool) -> str:
        way: Way = getattr(found, "__way__", DEFAULT)
        awaited = way.awaited and node.name not in PASSED and node.name != "__init__"
        if is_block(found):  # -> Iterator[...]
            awaited = False
            manager = self._named(("contextlib", "AbstractAsyncContextManager"))
            kind = f"{manager}[{self._type(node.returns.slice, where)}]"
        elif way.name == "steps":  # -> Steps[...]
            kind = self._type(node.returns.slice, where)
        else:
            kind = self._type(node.returns, where)
        begin = "async def" if awaited else "def"
        text = f"{begin} {node.name}({self._arguments(node, where, method=method)}) -> {kind}:"
        return f"{text}\n{_indented(_doc(node) or '...')}"

    def _arguments(self, node: Any, where: Source, *, method: bool = True) -> str:
        args: ast.arguments = node.args
        first = [*args.posonlyargs, *args.args]
        if not method and first and first[0].arg == "cls":
            first = first[1:]
        defaults = [None] * (len(first) - len(args.defaults)) + list(args.defaults)
        parts = []
        for at, (one, default) in enumerate(zip(first, defaults, strict=True)):
            parts.append(self._argument(one, default, where))
            if args.posonlyargs and one is args.posonlyargs[-1] and at + 1 <= len(first):
                parts.append("/")
        if args.vararg is not None:
            parts.append("*" + self._argument(args.vararg, None, where))
        elif args.kwonlyargs:
            parts.append("*")
        for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            parts.append(self._argument(one, default, where))
        if args.kwarg is not None:
            parts.append("**" + self._argument(args.kwarg, None, where))
        return ", ".join(parts)

    def _argument(self, one: ast.arg, default: ast.expr | None, where: Source) -> str:
        text = (
            one.arg if one.annotation is None else f"{one.arg}: {self._type(one.annotation, where)}"
        )
        if default is None:
            return text
        plain = isinstance(default, ast.Constant | ast.UnaryOp) or ast.unparse(default) == "()"
        return f"{text} = {ast.unparse(default) if plain else '...'}"


class _Renamed(ast.NodeTransformer):
    """An annotation in the names of a stub."""

    def __init__(self, stub: Stub, where: Source) -> None:
        self._stub = stub
        self._where = where

    def visit_Name(self, node: ast.Name) -> ast.expr:
        target = self._where.targets.get(node.id)
        if target is None:
            assert hasattr(builtins, node.id), f"{self._where.name}: what is {node.id}?"
            return node
        return ast.Name(self._stub._named(target))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name):
            module, name = self._where.targets[node.value.id]
            if name and is_module(f"{module}.{name}"):
                module, name = f"{module}.{name}", ""
            if not name and module.startswith("holdfast"):
                return ast.Name(self._stub._named((module, node.attr)))
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """`blocking.Store | Store`, of which the async one is the same, is that one."""
        self.generic_visit(node)
        return node.left if ast.unparse(node.left) == ast.unparse(node.right) else node


def _by_hand(module: str, name: str) -> Target | None:
    if not module.startswith("holdfast"):
        return None
    found = getattr(import_module(module), name, None)
    where = vars(found).get("__by_hand__") if isinstance(found, type) else None
    where = INSTEAD.get((module, name), where)
    if where is None:
        return None
    module, name = where.split(":")
    return module, name


def _doc(node: ast.ClassDef | Function) -> str:
    first = node.body[0]
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return ""
    doc = ast.get_docstring(node)
    assert doc is not None
    quoted = 'r"""' if "\\" in doc else '"""'
    return f'{quoted}{doc}\n"""' if "\n" in doc else f'{quoted}{doc}"""'


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in text.split("\n"))


def _formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(SRC / "holdfast" / "__init__.pyi"), "-"]
    for command in (["check", "--quiet", "--fix", "--select", "I"], ["format", "--quiet"]):
        done = subprocess.run(
            [*ruff, *command, *name], input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"ruff: {done.stderr or done.stdout}\n{text}")
        text = done.stdout
    return text


def blocking(part: str) -> str:
    """The stub of a part of `holdfast.sync`, which is a module without a file."""
    module = import_module(f"holdfast.{part}")
    home = {
        name: at for at, names in getattr(module, "HOMES", {}).items() for name in names.split()
    }
    lines = [
        f"from {home.get(name, f'holdfast.{part}')} import {name} as {name}"
        for name in module.__all__
    ]
    return _formatted("\n".join([HEAD, *lines, ""]))


def door() -> str:
    """The stub of `holdfast.store.inner`: the names of its table, and its own functions."""
    names = {one: at for at, names in import_module(INNER).HOMES.items() for one in names.split()}
    lines = [f"from {at} import {name} as {name}" for name, at in names.items()]
    for name, (module, attribute) in source(INNER).targets.items():
        if name not in names and module not in (INNER, "holdfast.exports"):
            lines.append(f"from {module} import {attribute} as {name}")
    functions = [one for one in source(INNER).tree.body if isinstance(one, ast.FunctionDef)]
    overloaded = {one.name for one in functions if one.decorator_list}
    for one in functions:
        if one.decorator_list or one.name not in overloaded:
            one.body = one.body[:1]  # its docstring
            lines.append(ast.unparse(one))
    return _formatted("\n".join([HEAD, *lines, ""]))


def stubs() -> dict[Path, str]:
    """Each stub as it should be."""
    found = {
        SRC / Path(*part.split(".")) / "__init__.pyi": Stub(part).text()
        for part, table in tables().items()
        if table
    }
    found[SRC / Path(*INNER.split(".")).with_suffix(".pyi")] = door()
    found[SRC / Path(*MADE.split(".")).with_suffix(".pyi")] = Stub(MADE).bases()
    return found | {SRC / "holdfast" / "sync" / f"{part}.pyi": blocking(part) for part in PARTS}


def main() -> None:
    """Write the stubs, or tell which are stale."""
    stale = [
        (path, text)
        for path, text in stubs().items()
        if not path.exists() or path.read_text() != text
    ]
    if "--check" not in sys.argv:
        for path, text in stale:
            path.write_text(text)
    for path, _ in stale:
        print(path.relative_to(ROOT))
    if stale and "--check" in sys.argv:
        raise SystemExit("stale; run scripts/stubs.py")


if __name__ == "__main__":
    main()
