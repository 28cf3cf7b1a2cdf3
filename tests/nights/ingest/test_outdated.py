"""What is left to do of documents that an earlier attempt or an earlier night has started with."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED, SUBMITTED, ItemState
from airflow_provider.nights.ingest import outdated
from airflow_provider.nights.ingest.documents import Document
from airflow_provider.nights.ingest.earlier import EarlierDocuments, find_removed, resume_documents
from airflow_provider.nights.ingest.outdated import Outdated, find_outdated
from airflow_provider.storage.locations import Location

LOG = logging.getLogger("task")
DOWN = exc.ComplianceStorageError("The store is down.")
DENIED = exc.ComplianceStorageDeniedError("No.")


class Sources:
    """The versions of all sources, and what the store says about them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listed: dict[str, Any] = {}
        self.versions: dict[str, str | Exception] = {}
        self.asked: list[str] = []

    def document(self, name: str, state: ItemState, size: int | None = 3, version: str = "1-a") -> Document:
        """Return a document with a text of three bytes."""
        text = self.folder / f"{name}.txt"
        text.write_bytes(b"abc")
        fields: dict[str, Any] = {"path": str(text), "bytes": size} if state in (COMPLETED, SKIPPED) else {}
        document = Document(name, f"job-{name}", state, source_version=version, **fields)
        document.set_address(f"/in/{name}")
        return document

    async def find_infos(self, uris: list[str], seconds: float) -> dict[str, Any]:
        assert seconds == outdated.SOURCE_SECONDS
        return {uri: self.listed[uri] for uri in uris if uri in self.listed}

    def fingerprint(self, address: str) -> str:
        self.asked.append(address)
        found = self.versions.get(address.removeprefix("/in/"), "1-a")
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    made = Sources(tmp_path)
    monkeypatch.setattr(outdated, "find_infos", made.find_infos)
    monkeypatch.setattr(outdated, "fingerprint", made.fingerprint)
    return made


@pytest.mark.parametrize(
    ("state", "version", "size", "expected"),
    [
        (COMPLETED, "1-a", 3, None),
        (SKIPPED, "1-a", 3, None),
        (SUBMITTED, "1-a", 3, None),  # it has no text yet
        (COMPLETED, "1-a", 4, Outdated.TEXT),
        (SKIPPED, "1-a", None, Outdated.TEXT),
        (COMPLETED, "1-b", 3, Outdated.SOURCE),
        (SUBMITTED, "1-b", 3, Outdated.SOURCE),
        (COMPLETED, DENIED, 3, Outdated.GONE),
        (COMPLETED, DENIED, 4, Outdated.TEXT),
        (COMPLETED, DOWN, 3, DOWN),
        (SUBMITTED, DOWN, 3, DOWN),
        (COMPLETED, DOWN, 4, Outdated.TEXT),
    ],
)
def test_a_document_is_outdated_by_its_source_or_its_text(
    sources: Sources, state: ItemState, version: str | Exception, size: int | None, expected: Any
) -> None:
    sources.versions["a"] = version
    found = asyncio.run(find_outdated([sources.document("a", state, size)], 2))
    assert found == ({"a": expected} if expected else {})


def test_a_page_or_a_document_without_a_path_has_no_version_to_ask_for(sources: Sources) -> None:
    page = sources.document("page", COMPLETED, version="")
    lost = Document("lost", "job", COMPLETED, bytes=0)
    folder = Document("folder", "job", COMPLETED, path=str(sources.folder), bytes=0)
    found = asyncio.run(find_outdated([page, lost, folder], 2))
    assert found == {"lost": Outdated.TEXT, "folder": Outdated.TEXT}
    assert sources.asked == []


def test_a_listing_is_quicker_but_never_decides_that_something_is_outdated(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [sources.document(name, COMPLETED) for name in ("same", "behind", "unlisted")]
    for document in documents[:2]:
        sources.listed[document.path] = {"type": "file", "size": 3}
        sources.listed[document.address] = {"size": 1, "ETag": "a" if document.key == "same" else "old"}
    sources.listed[documents[1].path] = {"type": "file", "size": 2}
    looked, get_size = list[str](), Location.size

    def size(self: Location) -> int | None:
        looked.append(Path(self.path).stem)
        return get_size(self)

    monkeypatch.setattr(Location, "size", size)
    assert asyncio.run(find_outdated(documents, 2)) == {}
    assert sorted(sources.asked) == ["/in/behind", "/in/unlisted"]
    assert sorted(looked) == ["behind", "unlisted"]


def test_a_store_that_does_not_answer_is_an_error_that_may_pass(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: Any) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(outdated, "SOURCE_SECONDS", 0.01)
    monkeypatch.setattr(asyncio, "to_thread", hang)
    with pytest.raises(exc.ComplianceStorageError, match=r"'a' can't be read: .* within 0 s") as error:
        asyncio.run(outdated.read_version(sources.document("a", COMPLETED)))
    assert error.value.transient


def decide(documents: list[Document]) -> list[str]:
    """Decide what is left to do, without earlier nights; return the jobs that are cancelled."""
    run: Any = SimpleNamespace(concurrency=2, log=LOG)
    decided, jobs = asyncio.run(EarlierDocuments(run).decide(documents))
    assert decided == []
    return jobs


@pytest.mark.parametrize(
    ("unknown", "total", "is_outage"), [(4, 4, False), (5, 5, True), (5, 50, False), (6, 50, True)]
)
def test_sources_that_can_t_be_looked_at_have_not_changed_but_many_of_them_are_an_outage(
    sources: Sources, unknown: int, total: int, is_outage: bool
) -> None:
    """One blip of a store neither cancels a job nor drops a text."""
    documents = [sources.document(str(n), (SUBMITTED, COMPLETED)[n % 2]) for n in range(total)]
    sources.versions = {str(number): DOWN for number in range(unknown)}
    states = [document.state for document in documents]
    if is_outage:
        with pytest.raises(exc.ComplianceStorageError):
            decide(documents)
    else:
        assert decide(documents) == []  # no job is cancelled
        assert [document.state for document in documents] == states  # nor is one submitted again


def test_outdated_documents_are_fetched_or_submitted_again(
    sources: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    states = dict.fromkeys(("running", "shared", "twin"), SUBMITTED) | {"skipped": SKIPPED, "failed": FAILED}
    states |= {"text": COMPLETED, "done": COMPLETED}
    documents = [sources.document(name, state) for name, state in states.items()]
    documents.append(Document("new"))
    by_name = {document.key: document for document in documents}
    by_name["text"].bytes = 9
    by_name["shared"].job_id = by_name["twin"].job_id  # still needed
    sources.versions = dict.fromkeys(("done", "running", "shared", "skipped", "failed", "new"), "2-b")
    with caplog.at_level(logging.INFO, "task"):
        assert decide(documents) == ["job-running"]
    found = {document.key: (document.state, document.job_id) for document in documents}
    assert found == {
        "text": (SUBMITTED, "job-text"),  # its job still has the text
        "done": (PENDING, ""),
        "running": (PENDING, ""),
        "shared": (PENDING, ""),
        "twin": (SUBMITTED, "job-twin"),
        "skipped": (PENDING, ""),  # nothing is skipped any more
        "failed": (FAILED, "job-failed"),
        "new": (PENDING, ""),
    }
    assert caplog.text.count("has changed since it was submitted") == 3


def test_jobs_of_documents_that_left_the_list_are_named(caplog: pytest.LogCaptureFixture) -> None:
    known = {
        "kept": Document("kept", "1", SUBMITTED),
        "left": Document("left", "3", SUBMITTED),
        "first": Document("first", "2", SUBMITTED),
        "shared": Document("shared", "1", SUBMITTED),
        "done": Document("done", "4", COMPLETED),
        "unsent": Document("unsent"),
    }
    assert find_removed(known, ["kept"], LOG) == ["2", "3"]
    assert "No longer listed: 2 jobs in flight: ['2', '3']" in caplog.text
    caplog.clear()
    assert find_removed(known, known, LOG) == []
    assert not caplog.messages


def test_each_source_is_checked_before_it_is_submitted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def fs(self: Location) -> object:
        opened.append(self.uri)
        if self.conn_id == "nope":
            raise RuntimeError("The connection does not exist, token=s3cret")
        if self.conn_id == "nope2":
            raise exc.ComplianceInputError("It has the wrong type.")
        return object()

    monkeypatch.setattr(Location, "fs", property(fs))
    bad = {
        "": "blank",
        " ": "blank",
        "https://example.com/m\udce4rz": r"'https://example.com/m\xe4rz' is not a valid URL",
        "s3:///a": "not a valid location",
        "s3://nope@b/a": "does not exist, token=***",
        "s3://nope@b/b": "does not exist",
        "s3://nope2@b/a": "the wrong type",
    }
    good = ["https://example.com/a", "s3://c@b/a", "s3://c@b/b", "/in/a.pdf"]
    addresses = {source: source for source in [*bad, *good]} | {"redacted": "https://example.com/?token=x"}
    known = {"s3://nope@b/b": Document("s3://nope@b/b", "job", SUBMITTED)}
    with caplog.at_level(logging.INFO, "task"):
        documents = resume_documents(addresses, known, is_new_attempt=True, log=LOG)
    assert [document.key for document in documents] == list(addresses)
    assert [document.address for document in documents] == list(addresses.values())
    failed = {document.key: document.error for document in documents if document.state is FAILED}
    assert failed.keys() == bad.keys() - known.keys()
    assert all(bad[source] in error for source, error in failed.items())
    kinds = {document.key: document.failure_kind for document in documents if document.state is FAILED}
    assert kinds == {source: "store" if "nope" in source else "source_invalid" for source in failed}
    assert len(opened) == 4  # one of each store
    assert "which knew 1 document." in caplog.text
