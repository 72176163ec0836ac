"""What the tests of the command line share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast

PROGRAM = [sys.executable, "-c", "import sys; from holdfast.cli.main import main; sys.exit(main())"]
SOURCE = str(Path(holdfast.__file__).parents[1])  # that of this process, also if it is a copy


@dataclass(frozen=True)
class Result:
    """What a command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The one document on stderr."""
        return json.loads(self.err)


Cli = Callable[..., Result]
