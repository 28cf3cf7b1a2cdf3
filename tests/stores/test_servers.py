"""The storage servers do what tests rely on, and fsspec does on each of them what the code relies on."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests
from airflow.providers.common.compat.sdk import ObjectStoragePath

from tests.stores.conftest import KINDS, SERVERS
from tests.stores.servers import Program
from tests.stores.stores import Store

pytestmark = pytest.mark.stores  # the code is tested on them elsewhere

MIB = 2**20
BLOCK = 5 * MIB
# Around a block, and multiples of what Google takes at least.
SIZES = [0, 1, 2**18, 3 * 2**18, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 2**18, 2 * BLOCK, 12 * MIB]


@cache
def content(size: int) -> bytes:
    """Bytes that show when pieces are missing, doubled or swapped."""
    return random.Random(size).randbytes(size)


def file_for(store: Store, key: str, **options: Any) -> Any:
    path = ObjectStoragePath(store.base + key)
    return path.fs.open(path.path, "wb", block_size=BLOCK, **options)


@pytest.mark.parametrize("size", [0, 10, 12 * MIB])
def test_what_is_written_is_there(store: Store, size: int) -> None:
    path = ObjectStoragePath(store.base + "x")
    path.write_bytes(content(size))
    assert store.keys() == {"x"}
    assert store.read("x") == content(size)
    assert path.read_bytes() == content(size)
    assert store.unfinished() == 0


def test_what_others_put_there_can_be_read(store: Store) -> None:
    store.put("folder/a b.txt", b"from elsewhere")
    assert store.keys() == {"folder/a b.txt"}
    assert ObjectStoragePath(store.base + "folder/a b.txt").read_bytes() == b"from elsewhere"


def test_a_closed_file_is_whole_whatever_its_size(store: Store) -> None:
    for size in SIZES:
        with file_for(store, "x") as file:
            for start in range(0, size, MIB):
                file.write(content(size)[start : start + MIB])
        assert store.read("x") == content(size), size
    assert store.keys() == {"x"}
    assert store.unfinished() == 0


@pytest.mark.parametrize("before", [{}, {"x": b"an older one"}], ids=["new", "over an older one"])
def test_an_abandoned_file_is_never_seen(store: Store, before: dict[str, bytes]) -> None:
    for key, value in before.items():
        store.put(key, value)
    # On a disk only what is not to be committed by itself can be taken back.
    file = file_for(store, "x", autocommit=store.kind != "local")
    file.write(content(7 * MIB))
    file.write(content(5 * MIB))
    assert store.unfinished() == 1
    if store.kind == "local":
        file.close()
    else:
        file.closed = True
    file.discard()
    file.close()
    left = store.keys()
    assert {key: store.read(key) for key in left} == before
    # Azure can't abort: what was sent waits until it is overwritten or forgotten.
    assert store.unfinished() == (1 if store.kind == "azurite" else 0)


def test_a_server_comes_back_with_its_data(store: Store) -> None:
    store.put("x", b"before")
    store.stop()
    with pytest.raises(Exception, match=r"(?i)connect|refused|closed"):
        store.read("x")
    store.start()
    assert store.read("x") == b"before"
    path = ObjectStoragePath(store.base + "y")
    path.write_bytes(b"after")
    assert store.read("y") == b"after"


@pytest.mark.parametrize("size", [10, 12 * MIB])
def test_what_may_not_be_written_is_not_written(store: Store, size: int) -> None:
    for base in store.bases_of_faults.values():
        path = ObjectStoragePath(base + "x")
        with pytest.raises((OSError, RuntimeError)):  # adlfs makes a RuntimeError of everything
            path.write_bytes(content(size))
    assert store.keys() == set()


@pytest.mark.parametrize("kind", KINDS[2:])
def test_a_program_leaves_nothing_behind(kind: str) -> None:
    server = SERVERS[kind]()
    assert isinstance(server, Program)
    server.start()
    assert commands_with(str(server.folder))
    server.close()
    assert not commands_with(str(server.folder))
    assert not server.folder.exists()
    with pytest.raises(requests.ConnectionError):
        requests.get(server.url, timeout=5)


def commands_with(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(entry.read_text())
    return [command for command in found if text in command]
