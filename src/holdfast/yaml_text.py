"""Definitions from YAML, read as YAML 1.2 does: only `true` and `false` are no plain words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from holdfast.errors import HoldfastError, MissingExtraError

MOST_TEXT = 1 << 20


def read_yaml(text: str, refusal: Callable[[list[str]], HoldfastError]) -> Any:
    """The plain data of a YAML text; no tags, no aliases, no name twice.

    What is wrong with it is raised as the error that `refusal` makes of it.
    """
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise refusal([f"a definition in YAML is text of at most {MOST_TEXT} characters"])
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(
            "definitions in YAML need PyYAML: install holdfast[yaml], or give the same as plain "
            "data to `of`"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Safe, and without what makes small texts long or words something else."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise refusal(["aliases (*name) are not taken; write it out"])
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [self.construct_object(name, deep=True) for name, _ in node.value]
            for number, name in enumerate(names):
                if name in names[:number]:
                    line = node.value[number][0].start_mark.line + 1
                    raise refusal([f"line {line}: {name!r} is there twice"])
            return super().construct_mapping(node, deep)

    bool_tag = "tag:yaml.org,2002:bool"
    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != bool_tag]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(bool_tag, re.compile("true|false"), list("tf"))
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise refusal([f"{where}{getattr(error, 'problem', None) or 'this is not YAML'}"]) from None
    except (TypeError, ValueError, RecursionError):
        raise refusal(["this YAML holds something that no definition has"]) from None
