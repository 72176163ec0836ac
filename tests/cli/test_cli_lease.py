"""`holdfast lease`."""

from __future__ import annotations

import pytest
from cli_kit import Cli

from holdfast import sync
from holdfast.errors import LeaseLostError


def test_list_and_break(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        assert (cli("lease list").out, cli("lease list --json").json) == ("", {"leases": []})
        with store.lease("night job", owner="worker-1"):
            pass
        with store.lease("deploy", duration=60, owner="worker-7") as lease:
            lease.beat()
            listed = cli("lease list").out.splitlines()
            assert listed == ["deploy\t1\tworker-7\t60 s\t1", "night job\t1\t\t\t"]
            assert cli("lease list --json").json["leases"][0] == {
                "name": "deploy",
                "owner": "worker-7",
                "term": 1,
                "duration": 60.0,
                "beats": 1,
                "gone": False,
                "damage": None,
            }
            store.agent("7").set("k", 1)
            refused = cli("lease break deploy")
            assert (refused.code, "add --yes" in refused.err) == (2, True)
            store.agent("7").set("k", 2)
            done = cli("lease break deploy --yes")
            assert (done.out, done.err) == ("deploy: broken\n", "it was held by worker-7\n")
            with pytest.raises(LeaseLostError):
                store.agent("7").set("k", 3)
        again = cli("lease break deploy --yes --json").json
        assert again == {"broken": "deploy", "owner": None}
        assert "though nobody held it" in cli("lease break deploy --yes").out
    missing = cli("lease break nothing --yes")
    assert missing.code == 4
    assert "there is no lease 'nothing'; `holdfast lease list` shows them" in missing.err
    assert cli("lease break a//b --yes").code == 2
    assert cli("verify --json").json["leases"] == 2
