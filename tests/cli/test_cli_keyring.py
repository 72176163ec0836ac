"""`holdfast keyring`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Cli

from holdfast import sync

STORE = "--store data/a.db --key file:old.key"
NEW = "--store data/a.db --key file:new.key"


@pytest.fixture
def filled(cli: Cli) -> None:
    """An encrypted store with two scopes."""
    Path("data").mkdir()
    with sync.open("sqlite:data/a.db", key="file:old.key") as store:
        store.agent("7").set("plan", "ship")
        store.agent("8").set("plan", "wait")


@pytest.mark.usefixtures("filled")
def test_the_master_key(cli: Cli) -> None:
    assert cli(f"{STORE} keyring show --json").json == {
        "generation": 1,
        "rotating": False,
        "new_key_held": True,
        "scopes": 2,
        "data_keys": 2,
        "subjects": 0,
        "retired": 0,
        "left": 0,
    }
    begun = cli(f"{STORE} keyring rotate --new-key file:new.key")
    assert begun.code == 0
    assert "the old and the new master key open the store" in begun.out
    assert "keyring finish" in begun.err
    for options in (STORE, NEW):
        assert cli(f"{options} key get agent:7 plan --json").json["value"] == "ship"
    shown = cli(f"{STORE} keyring show")
    assert "rotating" in shown.out
    assert "being rotated" in shown.err
    refused = cli(f"{STORE} key set agent:9 plan 1 --json")
    assert (refused.code, refused.error["error"]) == (2, "KeyRetiringError")
    assert "add_key" not in refused.err
    assert cli(f"{NEW} key set agent:9 plan 1").code == 0
    assert cli(f"{STORE} keyring finish --json").error["error"] == "KeyRetiringError"
    assert "generation 2" in cli(f"{NEW} keyring finish").out
    retired = cli(f"{STORE} key get agent:7 plan --json")
    assert (retired.code, retired.error["error"]) == (2, "KeyRetiredError")
    assert cli(f"{NEW} keyring show --json").json["retired"] == 1
    Path("words").write_text("hush hush\n")
    Path("words").chmod(0o600)
    words = cli(f"{NEW} keyring rotate --new-passphrase-file words --json")
    assert words.json["rotating"] is True
    done = cli("--store data/a.db --passphrase-file words keyring finish --json").json
    assert (done["generation"], done["rotating"]) == (3, False)


@pytest.mark.usefixtures("filled")
def test_data_keys(cli: Cli) -> None:
    assert cli(f"{STORE} keyring rotate agent:7 --json").json == {"scope": "agent:7", "epoch": 2}
    assert "reseal agent:7" in cli(f"{STORE} keyring rotate agent:7").err
    assert "still in use" in cli(f"{STORE} keyring show").err
    done = cli(f"{STORE} keyring reseal agent:7 --json").json
    assert (done["scope"], done["epoch"], done["keys_removed"]) == ("agent:7", 3, 2)
    assert cli(f"{STORE} keyring rotate --all --json").json == {"scopes": 2}
    assert "--all" in cli(f"{STORE} keyring rotate --all").err
    found = cli(f"{STORE} keyring reseal --all --json").json["scopes"]
    assert [one["epoch"] for one in found] == [5, 3]
    assert "0 records were sealed again" in cli(f"{STORE} keyring reseal agent:8").out
    assert cli(f"{STORE} log agent:7 --kind 'rotate key' --json").json["entries"]
    assert cli(f"{STORE} verify").code == 0
    assert cli(f"{STORE} scope erase agent:7 --yes --json").json["key_removed"] is True
    assert cli(f"{STORE} keyring show --json").json["scopes"] == 1


@pytest.mark.usefixtures("filled")
def test_an_erase_that_is_not_waited_for_is_swept_later(cli: Cli) -> None:
    done = cli(f"{STORE} scope erase agent:7 --no-wait --yes")
    assert "agent:7: erased" in done.out
    assert "still open: its rows, which nobody can read any more; `holdfast sweep`" in done.err
    assert cli(f"{STORE} keyring show --json").json["scopes"] == 1
    assert cli(f"{STORE} key list agent:7").code == 4
    assert cli(f"{STORE} key set agent:7 k 2").code == 0  # another scope of that name
    shown = cli(f"{STORE} verify")
    assert (shown.code, "1 erases are not finished; `holdfast sweep`" in shown.out) == (0, True)
    assert cli(f"{STORE} verify --json").json["unswept"] == 1
    assert "0 unfinished values and 1 erased scopes swept: " in cli(f"{STORE} sweep").out
    assert cli(f"{STORE} sweep --json").json["rows"] == 0
    assert cli(f"{STORE} key get agent:7 k --json").json["value"] == 2
    assert cli(f"{STORE} verify").code == 0


@pytest.mark.usefixtures("filled")
def test_what_is_refused(cli: Cli) -> None:
    for words in (
        "keyring rotate",
        "keyring rotate agent:7 --all",
        "keyring rotate --all --new-key file:new.key",
        "keyring rotate --new-key passphrase:hush",
        "keyring rotate --new-key file:old.key",
        "keyring rotate --new-key file:new.key --new-passphrase-file words",
        "keyring reseal",
        "keyring reseal agent:7 --all",
    ):
        result = cli(f"{STORE} {words}")
        assert result.code == 2, words
        assert "hush" not in result.err
    assert cli(f"{STORE} keyring rotate agent:nobody").code == 4
    with sync.open("sqlite:data/plain.db") as store:
        store.agent("7").set("k", 1)
    assert cli("--store data/plain.db keyring show --json").error["error"] == "KeyNotNeededError"


@pytest.mark.usefixtures("filled")
def test_subjects(cli: Cli) -> None:
    assert cli(f"{STORE} key set agent:7 name '\"Ada\"' --subject user:42").code == 0
    assert cli(f"{STORE} key append agent:7 said 1 --subject user:42").code == 0
    assert cli(f"{STORE} key append agent:7 said 2").code == 0
    assert cli(f"{STORE} key get agent:7 name --json").json["value"] == "Ada"
    assert cli(f"{STORE} keyring subjects --json").json == {"subjects": ["user:42"]}
    assert "user:42" in cli(f"{STORE} keyring subjects").out
    assert cli(f"{STORE} keyring show --json").json["subjects"] == 1
    asked = cli(f"{STORE} keyring erase --subject user:42 --json")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    for wrong in ("", "agent:7 --subject user:42"):
        assert cli(f"{STORE} keyring erase {wrong} --yes --json").code == 2
    erased = cli(f"{STORE} keyring erase --subject user:42 --yes")
    assert "user:42: erased" in erased.out
    assert "still open: copies of the ring" in erased.err
    assert "keyring rotate --new-key" in erased.err
    assert cli(f"{STORE} key get agent:7 name --json").json["value"] == {"$erased": True}
    assert cli(f"{STORE} key get agent:7 said --json").json["value"] == [{"$erased": True}, 2]
    again = cli(f"{STORE} keyring erase --subject user:42 --yes --json")
    assert again.error["error"] == "MissingError"
    assert "$erased" in cli(f"{STORE} diff agent:7 1").out
    assert cli(f"{STORE} verify --json").json["subjects_erased"] == 1
    assert cli(f"{STORE} scope erase agent:8 --yes --json").json["erased"] == "agent:8"
    one = cli(f"{STORE} key set agent:7 name 1 --subject user:42 --json")
    assert one.code == 0
    done = cli(f"{STORE} keyring erase --subject user:42 --yes --json").json
    assert (done["subject"], done["key_removed"]) == ("user:42", True)
