"""What a row says of the file that was submitted: size, version and hash of what the service got."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.http import uploads
from airflow_provider.client.http.uploads import MultipartUpload
from airflow_provider.client.models import ContentJob
from airflow_provider.emulator import Emulator
from airflow_provider.nights.ingest.documents import Document, IngestSteps
from airflow_provider.storage import sources
from airflow_provider.storage.locations import Location
from airflow_provider.storage.sources import SourceFile
from tests.nights.ingest.conftest import Outcome, RunIngest

SIZES = [5, 1_023, 1_024, 1_025, uploads.UPLOAD_CHUNK_BYTES, uploads.UPLOAD_CHUNK_BYTES + 1, 3 * 1024**2 + 7]


def pdf(size: int) -> bytes:
    return b"%PDF-" + os.urandom(size - 5)


def sent(upload: MultipartUpload) -> bytes:
    """Read a form as a request does; return the file in it."""
    form = upload.content or b"".join(upload.chunks())
    return form[form.index(b"\r\n\r\n") + 4 : form.rindex(b"\r\n--")]


def is_hash_of(file: SourceFile, data: bytes) -> bool:
    return (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("store", ["local", "memory"])
def test_the_hash_is_that_of_what_was_sent(tmp_path: Path, store: str, size: int) -> None:
    data = pdf(size)
    (tmp_path / "a.pdf").write_bytes(data)
    file = SourceFile(str(tmp_path / "a.pdf"))
    if store == "memory":
        file.location.fs = fsspec.filesystem("memory")
        file.location.fs.pipe_file(file.location.path, data)
    upload = MultipartUpload(file)
    if upload.content is None:
        assert (file.size, file.sha256) == (None, "")  # what was read to find out its type was not sent
    else:
        assert is_hash_of(file, data)  # a small one is read at once
    assert sent(upload) == data
    assert is_hash_of(file, data)
    assert sent(upload) == data  # another request, after a refusal
    assert is_hash_of(file, data)
    upload.close()


@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_a_request_that_did_not_read_to_the_end_leaves_no_hash(tmp_path: Path, chunks: int) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf(2 * uploads.UPLOAD_CHUNK_BYTES + 1))
    file = SourceFile(str(path))
    upload = MultipartUpload(file)
    sent(upload)
    again = upload.chunks()
    for _ in range(1 + chunks):
        next(again)
    assert (file.size, file.sha256) == (path.stat().st_size, "")
    upload.close()


@pytest.mark.parametrize("change", ["between requests", "while it is read", "by growing"])
def test_a_file_that_changes_has_the_hash_of_what_was_sent(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.pdf"
    before, after = pdf(SIZES[-1]), pdf(SIZES[-1])
    path.write_bytes(before)
    file = SourceFile(str(path))
    upload = MultipartUpload(file)
    chunks = upload.chunks()
    body = [next(chunks), next(chunks)]
    if change == "by growing":
        path.write_bytes(before + b"more")
    else:
        with path.open("r+b") as changed:
            changed.write(after)
    if change == "between requests":
        assert sent(upload) == after
        assert is_hash_of(file, after)
    else:
        data = b"".join([*body, *chunks][1:-1])
        assert len(data) == len(before)
        assert (data == before) is (change == "by growing")
        assert is_hash_of(file, data)
    upload.close()


def test_a_read_that_an_abandoned_request_left_behind_disturbs_neither_bytes_nor_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pdf"
    data = pdf(4 * uploads.UPLOAD_CHUNK_BYTES)
    path.write_bytes(data)
    file = SourceFile(str(path))
    upload = MultipartUpload(file)
    stuck, released = threading.Event(), threading.Event()
    stream = upload._source.stream

    class Slow:
        """A store that takes long for its first read."""

        def read(self, size: int) -> bytes:
            if not stuck.is_set():
                stuck.set()
                released.wait(240)
            return stream.read(size)

        def __getattr__(self, name: str) -> Any:
            return getattr(stream, name)

    upload._source.stream = Slow()  # type: ignore[assignment] # all that it needs
    next(uploads.iter_chunks(upload))  # and the first read, ahead
    assert stuck.wait(240)
    again = uploads.iter_chunks(upload)
    body = [next(again)]  # while the other read is still running
    released.set()
    body += again
    chunks = [chunk.result() for chunk in body if not isinstance(chunk, bytes)]
    assert b"".join(chunks[1:-1]) == data
    assert is_hash_of(file, data)
    upload.close()


# -- in the rows


def test_an_empty_or_refused_file_has_no_hash(
    service: Emulator, tmp_path: Path, run_ingest: RunIngest, outcome: Outcome
) -> None:
    (tmp_path / "empty.pdf").touch()
    (tmp_path / "refused.pdf").write_bytes(pdf(100))
    service.fail("submit_file", status=413)
    paths = [str(tmp_path / name) for name in ("empty.pdf", "refused.pdf")]
    assert run_ingest(paths, max_failed=2) == (0, 2, 0)
    assert [outcome.rows[path]["source_bytes"] for path in paths] == [None, 100]
    assert [outcome.rows[path]["source_sha256"] for path in paths] == [None, None]


def test_a_second_submit_that_fails_leaves_no_hash_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf(100))
    document = Document(str(path))

    class Client:
        fails = False

        async def submit_file(self, file: SourceFile) -> ContentJob:
            sent(MultipartUpload(file))
            if self.fails:
                raise exc.ComplianceServerError("503")
            return ContentJob(uuid="u")

    client: Any = Client()
    steps = IngestSteps(client, lambda _: Location(str(tmp_path / "t")))
    asyncio.run(steps.submit(document))
    assert document.source_sha256
    Client.fails = True
    with pytest.raises(exc.ComplianceServerError):
        asyncio.run(steps.submit(document))
    assert document.source_sha256 == ""


@pytest.mark.parametrize(
    ("details", "etag"),
    [
        ({"VersionId": "v1", "ETag": '"e1"'}, "v1"),
        ({"VersionId": None, "ETag": '"e1"'}, "e1"),
        ({"VersionId": "null", "ETag": '"e1"'}, "e1"),
        ({"generation": "17", "etag": "CAE="}, "17"),
        ({"version_id": "2026-01-01T00:00:00Z", "etag": "0x8D"}, "2026-01-01T00:00:00Z"),
        ({"etag": "0x8D"}, "0x8D"),
        ({"mtime": 1.0}, None),
        ({}, None),
    ],
)
def test_the_etag_is_the_version_id_of_the_store_if_it_has_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, details: dict[str, Any], etag: str | None
) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(100))
    file = SourceFile(str(tmp_path / "a.pdf"))
    monkeypatch.setattr(sources, "_opened_details", lambda _: {"size": 100, **details})
    file.open("rb").close()
    assert file.etag == etag
