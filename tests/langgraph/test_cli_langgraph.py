"""`holdfast langgraph`: what people see of threads, and what programs get."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from sources_kit import Plan, asking, config, make_sqlite, talking

from holdfast import sync
from holdfast.cli.main import main
from holdfast.integrations.langgraph import HoldfastSaver

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Result:
    """What a command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Result]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of some threads, and a file of LangGraph's own saver."""
    folder = tmp_path_factory.mktemp("made")
    with sync.open(f"sqlite:{folder / 'holdfast.db'}") as store:
        saver = HoldfastSaver(store)
        graph = talking().compile(checkpointer=saver)
        graph.invoke({"messages": [("human", "hello")]}, config("talk"))
        asking().compile(checkpointer=saver).invoke({"messages": [("human", "?")]}, config("ask"))
        edited(saver)
    make_sqlite(folder / "threads.sqlite")
    return folder


def edited(saver: HoldfastSaver) -> None:
    """A thread whose last step changed a message, removed one, added one, and called a tool."""
    before = [HumanMessage("one", id="1"), AIMessage("two", id="2"), HumanMessage("x", id="3")]
    call = {"name": "search", "args": {"for": "tea"}, "id": "c"}
    after = [
        HumanMessage("one", id="1"),
        AIMessage("two, rather", id="2", tool_calls=[call]),
        ToolMessage("found", id="4", tool_call_id="c"),
    ]
    place: Any = config("edited", checkpoint_ns="")
    for number, (held, plan) in enumerate([(before, ["a"]), (after, ["a", "b"])], 1):
        checkpoint: Any = {
            "v": 4,
            "id": f"{number:08}",
            "ts": "2026-11-15T10:00:00+00:00",
            "channel_values": {"messages": held, "plan": Plan("ship", plan)},
            "channel_versions": {},
            "versions_seen": {},
        }
        place = saver.put(place, checkpoint, {"source": "loop", "step": number}, {})


@pytest.fixture(autouse=True)
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with copies of both, and none of the reader's own settings."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    for file in made.iterdir():
        shutil.copy2(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli() -> Cli:
    def run(line: str) -> Result:
        with CliRunner().isolation() as streams:
            code = main(["langgraph", *shlex.split(line)])
            return Result(code, *(stream.getvalue().decode() for stream in streams[:2]))

    return run


# ---- looking ---------------------------------------------------------------------------------


def test_threads_are_listed(cli: Cli) -> None:
    rows = [line.split("\t") for line in cli("threads").out.splitlines()]
    assert [row[0] for row in rows] == ["ask", "edited", "talk"]
    assert rows[1] == ["edited", "2", "1", "2026-11-15T10:00:00+00:00", "2", "loop"]
    found = cli("threads --json").json
    assert found["threads"][2]["namespaces"] == ["", "below"]
    assert found["threads"][1]["newest"]["id"] == "00000002"
    assert found["left"] == 0


def test_threads_are_chosen_by_their_beginning_and_number(cli: Cli) -> None:
    assert cli("threads --prefix ta").out.split("\t")[0] == "talk"
    short = cli("threads --limit 1")
    assert len(short.out.splitlines()) == 1
    assert "2 more" in short.err
    assert cli("threads --limit 1 --json").json["left"] == 2


def test_the_newest_checkpoint_is_shown(cli: Cli) -> None:
    text = cli("show edited").out
    assert "checkpoint: 00000002\nparent: 00000001\n" in text
    assert "messages (3)\n  human: one\n" in text
    assert '  ai: two, rather [calls search({"for": "tea"})]\n' in text
    assert "  tool: found\n" in text
    assert '  plan: Plan(goal="ship", steps=["a", "b"])\n' in text


def test_a_waiting_thread_shows_what_it_waits_for(cli: Cli) -> None:
    text = cli("show ask").out
    assert "next: ask\n" in text
    assert 'ask → __interrupt__: (Interrupt(value="really?"' in text
    assert 'work → seen: ["worked"]' in text
    found = cli("show ask --json").json
    assert found["next"] == ["ask"]
    assert found["may_have_run"] == []
    assert [one["node"] for one in found["pending"]] == ["ask", "work"]


def test_nodes_that_may_have_run_are_told(cli: Cli) -> None:
    """The store as a process left it that was killed while two tasks were at work."""
    with sync.open("sqlite:holdfast.db") as store:
        talked = HoldfastSaver(store).list(config("talk", checkpoint_ns=""))
        before = next(one for one in talked if one.metadata["step"] == 1)
        place = HoldfastSaver(store).put(
            config("cut", checkpoint_ns=""), before.checkpoint, before.metadata, {}
        )
        path = "~__pregel_push, 0000000000"
        HoldfastSaver(store).put_writes(place, [("seen", ["here"])], "task", path)
    found = cli("show cut --json").json
    assert (found["next"], found["may_have_run"]) == (["look"], ["look"])
    assert "may have run: look\n" in cli("show cut").out
    assert cli("show talk --json").json["next"] == []
    older = cli("show talk --history --json").json["checkpoints"]
    assert [one["next"] for one in older] == [[], ["below"], ["look"], ["answer"], ["__start__"]]


def test_an_older_checkpoint_is_shown_by_the_beginning_of_its_id(cli: Cli) -> None:
    assert cli("show edited --checkpoint 00000001 --json").json["step"] == 1
    ambiguous = cli("show edited --checkpoint 0000")
    assert ambiguous.code == 2
    assert "2 checkpoints" in ambiguous.err
    assert cli("show edited --checkpoint 9").code == 4


def test_history_is_listed_newest_first(cli: Cli) -> None:
    rows = [line.split("\t") for line in cli("show edited --history").out.splitlines()]
    assert [row[0] for row in rows] == ["00000002", "00000001"]
    assert rows[0][1:5] == ["2", "loop", "2026-11-15T10:00:00+00:00", "3"]
    found = cli("show edited --history --limit 1 --json").json
    assert (len(found["checkpoints"]), found["left"]) == (1, 1)
    assert found["checkpoints"][0]["messages"] == 3


def test_a_subgraphs_namespace_is_shown(cli: Cli) -> None:
    assert "'below'" in cli("show talk").err
    assert cli("show talk --ns below --json").json["namespace"] == "below"
    wrong = cli("show talk --ns bellow")
    assert wrong.code == 4
    assert "'below'" in wrong.err


def test_what_is_not_there_is_named(cli: Cli) -> None:
    missing = cli("show nobody")
    assert missing.code == 4
    assert "holdfast langgraph threads" in missing.err
    assert cli("show ask --history --checkpoint 1").code == 2


# ---- importing -------------------------------------------------------------------------------

IMPORT = "import threads.sqlite --store new.db"


def test_threads_are_imported_and_verified(cli: Cli) -> None:
    done = cli(f"{IMPORT} --create")
    assert done.code == 0
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["ask", "count", "talk", "team/7: ünï"]
    assert all(row[1] == row[2] and row[-1] == "ok" for row in rows)
    again = cli(f"{IMPORT} --json")
    assert again.code == 0
    assert all(one["ok"] and one["imported"] == 0 for one in again.json["threads"])
    assert cli("threads --store new.db --json").json["threads"][0]["thread"] == "ask"
    assert "really?" in cli("show ask --store new.db").out


def test_single_threads_are_imported(cli: Cli) -> None:
    found = cli(f"{IMPORT} --create --thread ask --json").json
    assert [one["thread"] for one in found["threads"]] == ["ask"]
    wrong = cli(f"{IMPORT} --thread asks")
    assert wrong.code == 4
    assert "'asks'" in wrong.err


def test_a_dry_run_changes_nothing(cli: Cli) -> None:
    assert cli(f"{IMPORT} --dry-run").code == 4  # it makes no store either
    assert not Path("new.db").exists()
    before = cli("threads").out
    found = cli("import threads.sqlite --dry-run --thread count --json")
    assert found.code == 0
    assert found.json["threads"][0]["imported"] > 5
    assert cli("threads").out == before


def test_a_thread_that_differs_is_refused_unless_it_is_replaced(cli: Cli) -> None:
    refused = cli("import threads.sqlite --thread ask")  # there is another thread of that id
    assert refused.code == 1
    assert "not taken" in refused.out
    assert "--replace" in refused.err
    done = cli("import threads.sqlite --thread ask --replace --json")
    assert done.code == 0
    assert done.json["threads"][0]["replaced"]
    with sync.open("sqlite:holdfast.db") as store:
        log = store.scope("custom:langgraph/ask").log()
        assert next(iter(log)).cause.actor


def test_sources_that_cannot_be_used_are_named(cli: Cli) -> None:
    missing = cli("import nothing.db")
    assert missing.code == 4
    assert "'nothing.db'" in missing.err
    assert cli("import holdfast.db").code == 2
    assert cli("import postgresql:///nothing?host=/not/there").code == 7
    assert cli(f"{IMPORT} --import no_such_module").code == 2
    assert cli(f"{IMPORT} --create --dry-run").code == 2


def test_a_class_is_found_where_the_command_is_run(here: Path) -> None:
    """In a process that has not loaded it yet, as a user's shell starts it."""
    (here / "sources_kit.py").write_text((HERE / "sources_kit.py").read_text())
    source = str(Path(sys.modules["holdfast"].__file__ or "").parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONSAFEPATH": "1"}

    def program(line: str) -> subprocess.CompletedProcess[str]:
        code = "import sys; from holdfast.cli.main import main; sys.exit(main())"
        words = [sys.executable, "-c", code, "langgraph", *shlex.split(line)]
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)

    refused = program(f"{IMPORT} --create --thread talk")
    assert refused.returncode == 1
    assert "--import sources_kit" in refused.stderr
    taken = program(f"{IMPORT} --thread talk --import sources_kit")
    assert taken.returncode == 0, taken.stderr
    # To look at it, the class is not needed.
    assert "plan: Plan(goal=" in program("show talk --store new.db").stdout


def test_without_langgraph_the_extra_is_named_and_all_else_works(here: Path) -> None:
    code = (
        "import sys; sys.modules['langgraph'] = None\n"
        "from holdfast.cli.main import main\n"
        "print(main(['langgraph', 'threads']), main(['--help']), main(['langgraph', '--help']))\n"
        "print(main(['scope', 'list']))"
    )
    source = str(Path(sys.modules["holdfast"].__file__ or "").parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "2 0 0" in done.stdout
    assert "custom:langgraph/ask" in done.stdout
    assert "holdfast[langgraph]" in done.stderr
