"""A server of S3 of the tests' own: SeaweedFS in a temporary folder."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest
from store_kit import free_port

ACCESS, SECRET = "AKIAHOLDFASTTESTS", "a-secret-of-the-tests"


def program() -> str:
    """Where the server's program is."""
    beside = Path(sys.executable).parent / "weed"
    if not beside.exists():
        if sys.platform == "linux" and platform.machine() == "x86_64":
            pytest.fail("the server of S3 is missing; run scripts/setup --tests")
        pytest.skip("there is no package of the server of S3 for this platform")
    return str(beside)


def _ports(count: int) -> list[int]:
    """Free ports; the server takes for each another one, 10000 above it."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


class Server:
    """A server on free ports of this machine, with one bucket."""

    bucket = "kai-agent-states"

    def __init__(self) -> None:
        weed = program()
        self.folder = tempfile.mkdtemp(prefix="holdfast-s3-")
        who = {"name": "tests", "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}]}
        rights = {"actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        settings = Path(self.folder) / "s3.json"
        settings.write_text(json.dumps({"identities": [who | rights]}))
        self._ports = master, volume, self._filer, self.port = _ports(4)
        command = [weed, "server", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += [f"-master.port={master}", f"-volume.port={volume}"]
        command += [f"-filer.port={self._filer}", "-s3", f"-s3.port={self.port}"]
        command += [f"-s3.config={settings}", "-master.volumeSizeLimitMB=64", "-volume.max=200"]
        command += ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd=self.folder)
        try:
            self._wait()
        except BaseException:
            self.remove()
            raise

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """What the environment says of credentials."""
        return {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}

    def _wait(self) -> None:
        """Make the bucket, and wait until an object can be put there."""
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        bucket = f"http://127.0.0.1:{self._filer}/buckets/{self.bucket}/"
        store = S3Store(
            self.bucket,
            endpoint=self.endpoint,
            region="us-west-2",
            access_key_id=ACCESS,
            secret_access_key=SECRET,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        made = False
        for _ in range(600):
            try:
                if not made:
                    asked = urllib.request.Request(bucket, method="POST")
                    urllib.request.urlopen(asked, timeout=2).close()
                    made = True
                obstore.put(store, "first", b"")
                return
            except (OSError, BaseError):
                time.sleep(0.1)
        pytest.fail("the server of S3 did not start")

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def remove(self) -> None:
        """End it, and remove what it kept."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        for port in (*self._ports, *(port + 10_000 for port in self._ports)):
            for socket_ in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                socket_.unlink()
