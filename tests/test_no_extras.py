"""The library alone: without its extras everything that needs none of them works."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
EXTRAS = "jsonschema_rs langchain_core langgraph numpy obstore ormsgpack psycopg pydantic"
for name in (*EXTRAS.split(), "pymongo", "redis", "yaml"):
    sys.modules[name] = None  # as if it were not installed
from holdfast import errors, sync
with sync.open("memory:") as store:
    state = store.agent("a")
    state.set("x", 1)
    state.restore(state.checkpoint("c"))
    import tempfile, pathlib
    with tempfile.TemporaryDirectory() as folder:  # only buckets need an extra
        backups = sync.backup.Backups(store, pathlib.Path(folder))
        assert backups.verify(backups.create().id).ok
        try:
            sync.backup.Backups(store, "s3://bucket")
        except Exception as error:
            assert "holdfast[backup]" in str(error)
    for part in ("access", "agents", "backup", "checkpoints", "recovery", "replicas", "schemas", "testing"):
        module = getattr(sync, part)
        assert all(getattr(module, name) is not None for name in module.__all__)
    try:
        sync.schemas.Schema("plan", fields={"goal": sync.schemas.Text()})
    except errors.MissingExtraError as error:
        assert "holdfast[schemas]" in str(error)
    else:
        raise AssertionError
    sync.recovery.Recovery(store).recover("agent:a", "agent_crash")
    assert store.verify().ok
"""


def test_everything_but_the_extras_works_without_them() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
