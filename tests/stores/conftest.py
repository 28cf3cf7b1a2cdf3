"""The fixture `store`: every kind of storage that this environment can talk to, one after the other."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.stores.s3_servers import Moto, Rclone, SeaweedFS
from tests.stores.servers import Azurite, FakeGcs, Server
from tests.stores.stores import AzureStore, GcsStore, LocalStore, S3Store, Store
from tests.support.speed import skip_fsync

# Before anything imports gcsfs: else it asks the server for what only Google's knows.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

MAKERS: dict[type[Server], Callable[[Any], Store]] = {
    Moto: S3Store.make,
    Rclone: S3Store.make,
    SeaweedFS: S3Store.make,
    Azurite: AzureStore.make,
    FakeGcs: GcsStore.make,
}
SERVERS = {server.kind: server for server in MAKERS}
CLOUD_MARKS = [
    pytest.mark.stores,
    # adlfs and gcsfs do that with every block.
    pytest.mark.filterwarnings("ignore:Sending a large body directly with raw bytes:ResourceWarning"),
]
KINDS = [
    "local",
    "moto",
    pytest.param("rclone", marks=pytest.mark.stores),
    pytest.param("seaweedfs", marks=pytest.mark.stores),
    pytest.param("azurite", marks=CLOUD_MARKS),
    pytest.param("gcs", marks=CLOUD_MARKS),
]


@pytest.fixture(scope="session")
def storage_server() -> Iterator[Callable[[str], Server]]:
    """Have a server of a kind running; all end with the tests."""
    made: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(kind: str) -> Server:
            if kind not in made:
                made[kind] = SERVERS[kind]()
                stack.callback(made[kind].close)
            made[kind].start()
            return made[kind]

        yield get


@pytest.fixture(params=KINDS)
def store(
    request: pytest.FixtureRequest,
    storage_server: Callable[[str], Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Store]:
    """A new bucket, container or folder, with the Airflow connection to it."""
    made: Store
    if request.param == "local":
        made = local = LocalStore.make(tmp_path)
        monkeypatch.setattr(tempfile, "tempdir", str(local.temporary))
    else:
        server = storage_server(request.param)
        made = MAKERS[type(server)](server)
    for conn_id, connection in made.connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
    with suppress(ImportError):  # by itself it repeats a request after 15 s, also one that creates an object
        monkeypatch.setattr("s3fs.S3FileSystem.read_timeout", 240)
    skip_fsync(monkeypatch)
    _forget_file_systems()
    yield made
    _forget_file_systems()
    if made.server:
        made.server.start()
    made.clear()


def _forget_file_systems() -> None:
    """Airflow keeps one for each name of a connection, and would go on with that of an earlier test."""
    try:
        kept = import_module("airflow.sdk.io.store")
    except ModuleNotFoundError:  # Airflow 2.11
        kept = import_module("airflow.io.store")
    kept._STORE_CACHE.clear()
