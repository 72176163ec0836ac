"""A cache that is away, slow, full, shut or no cache at all: the store goes on without it."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from redis_kit import PATIENT, Server
from store_kit import Place, free_port
from test_redis import LONG, results

from holdfast import sync
from holdfast.errors import InvalidInputError, MissingExtraError
from holdfast.storage import redis

pytestmark = pytest.mark.usefixtures("cached_files")

SOON = "timeout=100"
SECRET = "a-secret-of-the-tests"


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that the test may end."""
    made = Server()
    yield made
    made.remove()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place("sqlite", tmp_path, sealed=True)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that failed is tried again at once."""
    monkeypatch.setattr(redis, "REST", 0.0)
    monkeypatch.setattr(redis, "SHARE", 0)


def read_and_write(place: Place, store: sync.Store) -> None:
    """All of it works, and each value is read from elsewhere than memory."""
    state = store.agent("a")
    for number in range(3):
        state.set("plan", {"number": number, **LONG})
        store._core.atoms.clear()
        assert state.get("plan")["number"] == number
    assert store.verify().ok


def test_one_that_is_away_is_noted_and_used_when_it_is_back(
    place: Place, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    with caplog.at_level(logging.INFO, "holdfast.cache"):
        store = place.open(cache=server.url())
        read_and_write(place, store)
        assert set(results(store)) == {"failed"}
        assert set(results(store, "write")) == {"failed"}
        server.start()
        read_and_write(place, store)
    assert results(store)["hit"] == 3
    texts = [one.getMessage() for one in caplog.records]
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]
    assert all(f"redis://127.0.0.1:{server.port}/0" in text for text in texts)


def test_one_that_failed_is_left_alone_for_a_while(
    place: Place, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "REST", 3600.0)
    store = place.open(cache=server.url())
    store.agent("a").set("plan", LONG)
    server.kill()
    read_and_write(place, store)
    server.start()
    before = server.client().info("stats")["total_connections_received"]
    read_and_write(place, store)
    assert set(results(store)) == {"failed"}
    after = server.client().info("stats")["total_connections_received"]
    assert after == before + 1  # that of the question itself


def test_one_that_does_not_answer(place: Place, server: Server) -> None:
    store = place.open(cache=server.url(options=SOON))
    store.agent("a").set("plan", LONG)
    server.hang()
    read_and_write(place, store)
    place.open(cache=server.url(options=SOON)).agent("b").set("plan", LONG)
    server.go_on()
    assert results(store)["failed"] == 3


def test_one_that_is_killed_while_it_is_used(place: Place, server: Server) -> None:
    store = place.open(cache=server.url())
    over = threading.Event()
    failed: list[BaseException] = []

    def use() -> None:
        try:
            while not over.is_set():
                read_and_write(place, store)
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=use)
    writer.start()
    for _ in range(4):
        before = results(store).get("hit", 0)
        for _ in range(6000):
            if results(store).get("hit", 0) > before or not writer.is_alive():
                break
            over.wait(0.01)
        server.kill()
        server.start()
    over.set()
    writer.join(60)
    assert failed == []


def test_one_that_has_no_room_still_answers(place: Place, server: Server) -> None:
    store = place.open(cache=server.url())
    store.agent("a").set("first", LONG)
    client = server.client()
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    read_and_write(place, store)
    assert results(store, "write") == {"done": 1, "failed": 6}  # committed, and read again
    store._core.atoms.clear()
    assert store.agent("a").get("first") == LONG
    assert results(store) == {"hit": 1, "miss": 3}


def test_one_that_forgets(place: Place, server: Server) -> None:
    store = place.open(cache=server.url())
    client = server.client()
    for number in range(20):
        store.agent("a").set("plan", {"number": number, **LONG})
        store._core.atoms.clear()
        client.flushall()
        assert store.agent("a").get("plan")["number"] == number
    assert results(store) == {"miss": 20}


def test_a_wrong_password_is_noted_and_never_shown(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("--requirepass", "another-secret")
    try:
        with caplog.at_level(logging.DEBUG):
            store = place.open(cache=server.url(who=f"someone:{SECRET}@"))
            read_and_write(place, store)
            assert set(results(store)) == {"failed"}
            right = place.open(cache=server.url(who=":another-secret@"))
            read_and_write(place, right)
            assert results(right)["hit"] == 3
        core = store._core
        shown = caplog.text + repr([store, vars(core), vars(core.near), vars(core.storage)])
        assert "secret" not in shown
        assert "AuthenticationError" in caplog.text
    finally:
        server.remove()


def test_over_tls(place: Place, tmp_path: Path) -> None:
    certificate(tmp_path)
    port = free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "no"]
    for name, file in (("cert", "cert.pem"), ("key", "key.pem"), ("ca-cert", "cert.pem")):
        options += [f"--tls-{name}-file", str(tmp_path / file)]
    server = Server(*options)
    try:
        url = f"rediss://127.0.0.1:{port}/0?{PATIENT}"
        store = place.open(cache=f"{url}&ssl_ca_certs={tmp_path / 'cert.pem'}")
        read_and_write(place, store)
        assert results(store) == {"hit": 3}
        doubtful = place.open(cache=url)  # nobody vouches for the server
        read_and_write(place, doubtful)
        assert set(results(doubtful)) == {"failed"}
    finally:
        server.remove()


def certificate(folder: Path) -> None:
    """One of the server, which vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast tests")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def test_something_that_is_no_redis(place: Place) -> None:
    listening = socket.create_server(("127.0.0.1", free_port()))
    over = threading.Event()

    def answer() -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n\xff\xfe" * 50)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        port = listening.getsockname()[1]
        store = place.open(cache=f"redis://127.0.0.1:{port}?{PATIENT}")
        read_and_write(place, store)
        assert set(results(store)) == {"failed"}
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(60)


# what is refused


@pytest.mark.parametrize(
    "cache",
    [
        1,
        b"redis://localhost",
        "",
        "localhost:6379",
        "memcached://localhost",
        f"redis:{SECRET}",
        "redis://",
        f"redis://user:{SECRET}@",
        f"redis://user:{SECRET}/x@host",
        f"redis://user:{SECRET}@one,two/0",
        f"redis://user:{SECRET}@host/number",
        f"redis://user:{SECRET}@host/0?db=3",
        f"redis://user:{SECRET}@host/0?ssl_ca_certs=a",
        f"redis://user:{SECRET}@host/0?timeout=soon",
        f"redis://user:{SECRET}@host/0?timeout=1&timeout=2",
        f"redis://user:{SECRET}@host:99999999/0",
    ],
)
def test_what_names_no_cache_is_refused_and_nothing_is_made(tmp_path: Path, cache: Any) -> None:
    with pytest.raises(InvalidInputError, match="cache") as refused:
        sync.open(f"sqlite:{tmp_path / 'a.db'}", cache=cache)
    assert SECRET not in str(refused.value)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("ttl", [0, -1, True, None, "1h", float("nan"), float("inf"), 10**400])
def test_how_long_it_keeps_what_it_holds_is_a_time(tmp_path: Path, ttl: Any) -> None:
    with pytest.raises(InvalidInputError, match="cache_ttl"):
        sync.open(f"sqlite:{tmp_path / 'a.db'}", cache="redis://localhost", cache_ttl=ttl)
    assert [*tmp_path.iterdir()] == []


def test_without_its_driver_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "holdfast.storage.redis")
    with pytest.raises(MissingExtraError, match=r"holdfast\[redis\]"):
        sync.open(f"sqlite:{tmp_path / 'a.db'}", cache="redis://localhost")
    assert [*tmp_path.iterdir()] == []
