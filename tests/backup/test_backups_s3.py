"""Backups in a bucket of a real server of S3."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from backup_kit import fill, restored, values
from s3_kit import SECRET, Server
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.backup.place import Place as ObjectPlace
from holdfast.errors import BackupNotFoundError, ConfigurationError, Unavailable
from holdfast.recovery import Configuration

DOCUMENT = """
agent_id: ai.kai.assistant.general
storage:
  primary: {type: sqlite, connection: "%s", key: "%s", signer: "%s"}
  backup:
    type: "s3"
    bucket: "kai-agent-states"
    region: "us-west-2"
    encryption: true
"""


@pytest.fixture
def sealed(tmp_path: Path) -> Place:
    return Place("sqlite", tmp_path, sealed=True)


@pytest.fixture(autouse=True)
def credentials(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)


def _region_asked_for(config: Configuration, monkeypatch: pytest.MonkeyPatch) -> str:
    """The region that a request of the backups is signed for, as a server sees it."""
    signed: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            signed.append(self.headers["Authorization"])
            self.send_error(403)

        def log_message(self, *words: object) -> None:
            """Nothing is said of it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        with sync.recovery.set_up(config, start=False) as managed:
            assert managed.backups is not None
            with pytest.raises(Unavailable):
                managed.backups.list()
        server.shutdown()
    (region,) = {one.partition("Credential=")[2].split("/")[2] for one in signed}
    return region


@pytest.mark.spec("K259")
def test_the_documents_backup_is_set_up(
    s3: Server, sealed: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: `region` or `encryption` of the document that is not handed on."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    text = DOCUMENT % (sealed.path, sealed.key, sealed.signer)
    config = Configuration.from_yaml(text)
    with sync.recovery.set_up(config, initial={"task": 1}, start=False) as managed:
        assert managed.report.backup == "s3://kai-agent-states"
        assert managed.backups is not None
        managed.state.set("task", 2)
        managed.state.set("plan", "a secret plan")
        made = managed.backups.create("from the document", keys=True)
        assert managed.backups.verify(made.id).ok
        assert made.encrypted
        place = managed.backups._place
        kept = b"".join(place.get(one.name, one.size) for one in place.objects(""))
        assert len(kept) > 1000
        assert b"a secret plan" not in kept, "what is in the bucket is encrypted"
        again = restored(managed.backups, made.id, sealed, "again")
        assert again.agent("ai.kai.assistant.general").get("task") == 2
        sealed.close()
        managed.backups.delete(made.id)

    async def other_face() -> None:
        async with holdfast.recovery.set_up(config, start=False) as managed:
            assert managed.backups is not None
            assert await managed.backups.list() == []

    asyncio.run(other_face())
    assert _region_asked_for(config, monkeypatch) == "us-west-2"
    # Encryption is demanded, and a plain store has none: nothing is made.
    plain = text.replace(str(sealed.path), f"{tmp_path}/plain.db")
    plain = plain.replace(f', key: "{sealed.key}"', "")
    with pytest.raises(ConfigurationError, match="encryption"):
        sync.recovery.set_up(Configuration.from_yaml(plain))
    assert not (tmp_path / "plain.db").exists()


@pytest.mark.spec("K9")
def test_a_bucket_holds_backups_as_a_folder_does(s3: Server, sealed: Place) -> None:
    store = sealed.open()
    fill(store)
    backups = sync.backup.Backups(
        store, "s3://kai-agent-states/some/prefix", region="us-west-2", endpoint=s3.endpoint
    )
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: backups.create(keys=True), range(3)))
    store.agent("agent-0").set("facts/1", "other")
    last = backups.create("last", keys=True)
    assert last.type == "incremental"
    assert backups.list()[0] == last
    assert {one.id for one in backups.list()} == {one.id for one in (*made, last)}
    assert len(backups.prune(1).deleted) == 3
    assert backups.verify(last.id).ok
    assert values(restored(backups, last.id, sealed, "again")) == values(store)
    place = backups._place
    assert len(list(place.objects("objects"))) == last.objects + 1
    (part, *_) = [one.name for one in place.objects("objects")]
    place.put(part, b"other")
    assert not backups.verify(last.id).ok
    place.drop([part, part])
    assert not backups.verify(last.id).ok
    backups.delete(last.id)
    assert list(place.objects("")) == []
    sealed.close()


def test_an_object_is_created_once(s3: Server) -> None:
    place = ObjectPlace("s3://kai-agent-states/once", region="us-west-2", endpoint=s3.endpoint)
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: place.create("one", bytes([n])), range(8)))
    assert won.count(True) == 1
    assert place.get("one", 1) == bytes([won.index(True)])
    assert place.create("one", place.get("one", 1)), "the answer to the first request was lost"
    place.drop(["one"])


def test_errors_and_reprs_show_no_secrets(
    s3: Server, sealed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sealed.open()
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr("holdfast.backup.place._RETRIES", 0)
    shown = []
    for url, endpoint, secret in (
        ("s3://no-such-bucket", s3.endpoint, SECRET),
        ("s3://kai-agent-states", s3.endpoint, "another-secret"),
        ("s3://kai-agent-states", nobody, SECRET),
    ):
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        backups = sync.backup.Backups(store, url, region="us-west-2", endpoint=endpoint)
        shown.append(repr(backups) + repr(backups._place))
        with pytest.raises((Unavailable, BackupNotFoundError)) as caught:
            backups.create()
        shown.append(str(caught.value))
        assert caught.value.__cause__ is None
    assert not [text for text in shown if "secret" in text or "AKIA" in text]
    sealed.close()
