"""Nights closed in every store: each object of the evidence is written once, and never again."""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.nights.evidence.chain import Chain
from airflow_provider.nights.evidence.erasing import Erasure
from airflow_provider.nights.evidence.jobs import Job
from airflow_provider.nights.evidence.stores import RemoteStore
from airflow_provider.nights.evidence.verifier import Verifier
from airflow_provider.storage.atomic import create_once, keep
from airflow_provider.storage.locations import Location
from tests.stores.s3_servers import S3Server
from tests.stores.servers import Server
from tests.stores.stores import Store
from tests.support.attempts import allow_tasks_in_thread
from tests.support.nights import Nights, render_plainly

log = logging.getLogger(__name__)


@pytest.fixture(autouse=True)
def _plain_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider.nights.reports.night.render_night", render_plainly)


def test_nights_are_closed_in_every_store(store: Store, tmp_path: Path) -> None:
    nights = Nights(f"{store.base}nights/", tmp_path)
    nights.close(
        1, ingested=nights.ingested("1", a="COMPLETED", b="FAILED"), assessed=nights.assessed("1", "a")
    )
    again = nights.close(2, ingested=nights.ingested("2", a="SKIPPED", b="FAILED"))
    nights.close(1, ingested=nights.ingested("1", a="COMPLETED"), identity={"try_number": 2})
    keys = store.keys()
    assert (
        nights.close(2, ingested=nights.ingested("2", a="SKIPPED", b="FAILED"), identity={"try_number": 2})
        == again
    )
    assert store.keys() == keys
    assert [entry.record["night"][:10] for entry in nights.in_force] == ["2026-03-02", "2026-03-01"]
    assert store.unfinished() == 0


def test_an_object_is_created_once(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"large" * 5_000_000)
    for name, one, other in (("small", b"one", b"two"), ("large", file, b"two"), ("other", b"one", file)):
        location = Location(f"{store.base}{name}")
        assert create_once(location, one)
        assert not create_once(location, other)
        assert store.read(name) == (one if isinstance(one, bytes) else one.read_bytes())
    kept = keep(Location(f"{store.base}small"), b"two", hashlib.sha256(b"two").hexdigest())
    assert (store.read("small"), store.read(kept.uri.removeprefix(store.base))) == (b"one", b"two")
    assert store.unfinished() == 0


def test_of_writers_at_once_one_creates_the_object(store: Store) -> None:
    if store.kind == "rclone":
        pytest.skip("rclone ignores conditions")
    for number in range(3):
        location = Location(f"{store.base}once-{number}")
        _ = location.fs

        def create(content: bytes, location: Location = location) -> bool:
            return create_once(location, content)

        contents = [bytes([letter]) * 1000 for letter in b"abcdefgh"]
        with ThreadPoolExecutor(len(contents)) as pool:
            created = list(pool.map(create, contents))
        assert created.count(True) == 1
        assert store.read(f"once-{number}") == contents[created.index(True)]


def test_two_that_close_at_once_make_one_chain(store: Store, tmp_path: Path) -> None:
    if store.kind == "rclone":
        pytest.skip("rclone ignores conditions")
    nights = Nights(f"{store.base}nights/", tmp_path)
    outputs = {day: nights.ingested(str(day), a="FAILED") for day in range(1, 4)}
    _ = Location(store.base).fs

    def close(day: int) -> None:
        allow_tasks_in_thread()
        nights.close(day, ingested=outputs[day])

    with ThreadPoolExecutor(len(outputs)) as pool:
        list(pool.map(close, outputs))
    assert sorted(entry.record["night"][8:10] for entry in nights.entries) == ["01", "02", "03"]


# -- Object Lock


@pytest.fixture(params=["moto", "seaweedfs"])
def locked(
    request: pytest.FixtureRequest,
    storage_server: Callable[[str], Server],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LockedStore]:
    """A bucket with Object Lock, in which all objects are kept for a day by default."""
    import json

    from tests.stores.conftest import _forget_file_systems
    from tests.stores.stores import _aws

    server = storage_server(request.param)
    assert isinstance(server, S3Server)
    bucket = f"locked-{uuid.uuid4().hex[:8]}"
    client = server.client()
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    monkeypatch.setenv("AIRFLOW_CONN_STORE_LOCKED", json.dumps(_aws(server, server.writer)))
    _forget_file_systems()
    yield LockedStore(client, bucket)
    _forget_file_systems()
    client.close()


class LockedStore:
    def __init__(self, client: Any, bucket: str) -> None:
        self.client = client
        self.bucket = bucket
        self.base = f"s3://store_locked@{bucket}/"

    def versions(self) -> tuple[Counter[str], list[str]]:
        """Return how many versions each object has, and the keys of delete markers."""
        versions: Counter[str] = Counter()
        markers: list[str] = []
        for page in self.client.get_paginator("list_object_versions").paginate(Bucket=self.bucket):
            versions.update(version["Key"] for version in page.get("Versions", ()))
            markers += [version["Key"] for version in page.get("DeleteMarkers", ())]
        return versions, markers

    def lock_all(self, prefix: str = "") -> None:
        """Let no one, not even an administrator, remove or replace a version."""
        until = datetime.now(UTC) + timedelta(days=1)
        for page in self.client.get_paginator("list_object_versions").paginate(
            Bucket=self.bucket, Prefix=prefix
        ):
            for version in page.get("Versions", ()):
                self.client.put_object_retention(
                    Bucket=self.bucket,
                    Key=version["Key"],
                    VersionId=version["VersionId"],
                    Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until},
                )


@pytest.mark.stores
def test_nothing_in_the_evidence_is_written_twice_or_deleted(locked: LockedStore, tmp_path: Path) -> None:
    nights = Nights(f"{locked.base}nights/", tmp_path)

    def close(day: int, try_number: int, **documents: str) -> None:
        nights.close(
            day,
            ingested=nights.ingested(str(day), **documents),
            assessed=nights.assessed(str(day), *documents),
            identity={"try_number": try_number},
        )
        locked.lock_all()

    close(1, 1, a="FAILED", b="COMPLETED")
    close(2, 1, a="FAILED", b="COMPLETED")
    close(2, 2, a="FAILED", b="COMPLETED")  # again
    close(1, 2, a="COMPLETED", b="COMPLETED")  # a revision
    close(1, 3, a="FAILED", b="COMPLETED")  # as it was at first
    close(3, 1)
    versions, markers = locked.versions()
    assert [entry.record["revision"] for entry in nights.entries] == [1, 1, 2, 3, 1]
    assert markers == []
    assert set(versions.values()) == {1}
    assert {key.split("/")[1] for key in versions if "/_night/" not in key} == {"_evidence"}
    assert len(versions) > 10


class NoJobs:
    """A service that has no jobs of the documents."""

    def check(self) -> None:
        """Do nothing."""

    def delete(self, jobs: Collection[Job]) -> list[Job]:
        """Do nothing."""
        return []


@pytest.mark.stores
def test_a_document_is_erased_though_the_evidence_is_locked(locked: LockedStore, tmp_path: Path) -> None:
    """In COMPLIANCE mode: not even an administrator can remove a version of what is below `_evidence/`."""
    nights = Nights(f"{locked.base}nights/", tmp_path)
    for day in (1, 2):
        nights.close(
            day,
            ingested=nights.ingested(str(day), anna="FAILED", bert="FAILED"),
            assessed=nights.assessed(str(day), "anna", "bert"),
        )
    locked.lock_all("nights/_evidence/")
    Erasure(Location(nights.base), ["anna"], "A request", "the officer", log).run(NoJobs())
    versions, markers = locked.versions()
    assert {count for key, count in versions.items() if "/_evidence/" in key} == {1}
    assert not any("/_evidence/" in key for key in markers)
    checks = list(Verifier(RemoteStore(Location(nights.base), 4)).run())
    assert [check.erased for check in checks] == [4, 4, 0, 0, 0]  # three rows and the report of each night
    assert not any(set(check.counts) - {"invalid"} for check in checks)  # these rows name no results
    client, bucket = locked.client, locked.bucket
    current = [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
    contents = [client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in current]
    # The ids of jobs are named until they are deleted.
    assert not any(b"anna" in content.replace(b"u-anna", b"") for content in contents)
    assert any(b"bert" in content for content in contents)


@pytest.mark.stores
def test_a_record_with_retention_can_be_neither_replaced_nor_removed(
    locked: LockedStore, tmp_path: Path
) -> None:
    """What a person with all rights tries is a new version; the one that the chain refers to stays."""
    nights = Nights(f"{locked.base}nights/", tmp_path)
    nights.close(1, ingested=nights.ingested("1", a="COMPLETED"))
    locked.lock_all()
    key = "nights/_evidence/nights/00000001.json"
    (version,) = locked.client.list_object_versions(Bucket=locked.bucket, Prefix=key)["Versions"]
    with pytest.raises(locked.client.exceptions.ClientError, match=r"Access ?Denied"):
        locked.client.delete_object(Bucket=locked.bucket, Key=key, VersionId=version["VersionId"])
    assert Chain(Location(nights.base)).read(1).record["night"][:10] == "2026-03-01"
