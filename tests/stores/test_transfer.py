"""The transfer operator on every store: round trips, and that nothing is ever there half."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import signal
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowTaskTimeout, ObjectStoragePath

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.storage import atomic, texts
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from tests.stores.stores import Store
from tests.support.attempts import Attempts
from tests.support.jobs import completed, in_our_hands
from tests.support.signals import signalled_when, until

MIB = 1 << 20
LINE = "All work and no play makes a dull text. "
LARGE = (LINE * (12 * MIB // len(LINE) + 1))[: 12 * MIB]
WORKER = """
import sys
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from tests.support.attempts import Attempts
Attempts().run(
    ComplianceContentToObjectStorageOperator(task_id="t", uuid=sys.argv[1], destination=sys.argv[2])
)
"""


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    monkeypatch.setattr(texts, "MAX_REFETCHES", 0)
    return in_our_hands(compliance_service, monkeypatch)


def transfer(uuid: Any, destination: str, **kwargs: Any) -> ComplianceContentToObjectStorageOperator:
    return ComplianceContentToObjectStorageOperator(
        **{"task_id": "t", "uuid": uuid, "destination": destination, **kwargs}
    )


@pytest.mark.parametrize(
    "size",
    [0, 1, 5 * MIB - 1, 5 * MIB, 5 * MIB + 1, 10 * MIB, 12 * MIB],
    ids=["empty", "1", "5M-1", "5M", "5M+1", "10M", "12M"],
)
def test_a_text_arrives_as_it_is(service: Emulator, attempts: Attempts, store: Store, size: int) -> None:
    uuid = completed(service, text=LARGE[:size])
    (uri,) = attempts.run(transfer(uuid, f"{store.base}deep/x.txt"))
    assert store.read("deep/x.txt") == LARGE[:size].encode()
    assert store.keys() == {"deep/x.txt"}
    assert store.unfinished() == 0
    assert attempts.ti.xcoms["sha256"] == [hashlib.sha256(LARGE[:size].encode()).hexdigest()]
    with ObjectStoragePath(uri).open("rb") as file:  # as the next task does
        assert len(file.read()) == size


def test_many_texts_arrive_with_hostile_names(service: Emulator, attempts: Attempts, store: Store) -> None:
    hostile = ["../x", "a b.pdf", "a?versionId=1#2.pdf", "ä%2F.pdf", "x" * 300, "\u202e.pdf", "A B.pdf"]
    uuids = [completed(service, text=f"Text von {name}", file_name=name) for name in hostile]
    template = "dt=2026-01-01/{source_name}.txt.gz"
    uris = attempts.run(transfer(uuids, store.base, file_name_template=template))
    keys = [uri.removeprefix(store.base) for uri in uris]
    assert store.keys() == set(keys)
    for key, name in zip(keys, hostile, strict=True):
        assert gzip.decompress(store.read(key)).decode() == f"Text von {name}"


@pytest.mark.parametrize("old", [False, True], ids=["new", "over an old one"])
def test_a_text_that_breaks_off_leaves_nothing(
    service: Emulator, attempts: Attempts, store: Store, old: bool
) -> None:
    if old:
        store.put("x.txt", b"old")
    uuid = completed(service, text=LARGE + LARGE)
    service.fail("get_content", reset="middle", times=None)
    with pytest.raises(exc.ComplianceConnectionError, match="is incomplete"):
        attempts.run(transfer(uuid, f"{store.base}x.txt"))
    assert store.keys() == ({"x.txt"} if old else set())
    assert not old or store.read("x.txt") == b"old"
    assert store.unfinished() == 0


@pytest.mark.parametrize(
    "error", [exc.ComplianceInterruptedError, AirflowTaskTimeout], ids=["kill", "timeout"]
)
def test_a_task_that_is_killed_or_times_out_leaves_nothing(
    service: Emulator, attempts: Attempts, store: Store, error: type[BaseException]
) -> None:
    uuid = completed(service, text=LARGE + LARGE)
    service.fail("get_content", stall=120, times=None)
    task = transfer(uuid, f"{store.base}x.txt")

    def end() -> None:
        if error is AirflowTaskTimeout:
            raise error("Timeout")  # as Airflow does after `execution_timeout`, by a signal as well
        task.on_kill()

    with signalled_when(lambda: bool(service.count("get_content")), end), pytest.raises(error):
        attempts.run(task)
    assert store.keys() == set()
    assert store.unfinished() == 0


@pytest.mark.once
def test_a_killed_process_leaves_nothing_under_the_name_of_a_text(
    service: Emulator, attempts: Attempts, store: Store
) -> None:
    uuid = completed(service, text=LARGE + LARGE)
    service.fail("get_content", stall=120)
    command = [sys.executable, "-W", "ignore", "-c", WORKER, uuid, f"{store.base}x.txt"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as worker:
        until(lambda: worker.poll() is not None or service.count("get_content"))
        worker.kill()
        said, _ = worker.communicate()
    assert worker.returncode == -signal.SIGKILL, said.decode()[-3000:]
    assert not store.keys() & {"x.txt"}
    attempts.run(transfer(uuid, f"{store.base}x.txt"))
    assert store.read("x.txt") == (LARGE + LARGE).encode()


def test_a_store_that_goes_away_is_an_error_worth_a_retry(
    service: Emulator, attempts: Attempts, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.server is None:
        pytest.skip("a folder does not go away")
    _impatient(monkeypatch)
    uuid = completed(service, text=LARGE + LARGE)
    put = atomic.put_sync

    def stop_and_put(*args: Any) -> None:
        store.stop()
        put(*args)

    monkeypatch.setattr(texts, "put_sync", stop_and_put)
    with pytest.raises(exc.ComplianceStorageError, match="then retry") as error:
        attempts.run(transfer(uuid, f"{store.base}x.txt"))
    assert not isinstance(error.value, AirflowFailException)
    store.start()
    assert store.keys() == set()
    monkeypatch.setattr(texts, "put_sync", put)
    attempts.run(transfer(uuid, f"{store.base}x.txt"))
    assert store.read("x.txt") == (LARGE + LARGE).encode()


def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the libraries of the stores give up soon: by themselves they take half a minute and more."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    if find_spec("gcsfs"):
        monkeypatch.setattr("gcsfs.retry.asyncio", SimpleNamespace(sleep=lambda _: asyncio.sleep(0)))
    if find_spec("adlfs"):
        backoff = "azure.storage.blob._shared.policies_async.ExponentialRetry.get_backoff_time"
        monkeypatch.setattr(backoff, lambda *_: 0)


def test_a_bucket_that_is_missing_is_named(service: Emulator, attempts: Attempts, store: Store) -> None:
    uuid = completed(service, text="x")
    with pytest.raises(AirflowFailException, match="Create the bucket or container 'no-") as error:
        attempts.run(transfer(uuid, f"{store.missing}x.txt"))
    assert isinstance(error.value, exc.ComplianceStorageDeniedError)


def test_a_store_that_may_only_be_read_says_what_to_check(
    service: Emulator, attempts: Attempts, store: Store
) -> None:
    for text in ("x", LARGE):
        uuid = completed(service, text=text)
        with pytest.raises(AirflowFailException, match=r"Check|Choose a path") as error:
            attempts.run(transfer(uuid, f"{store.read_only}x.txt"))
        assert isinstance(error.value, exc.ComplianceStorageDeniedError)
        assert store.keys() == set()


def test_wrong_credentials_say_which_connection_to_check(
    service: Emulator, attempts: Attempts, store: Store
) -> None:
    uuid = completed(service, text="x")
    with pytest.raises(
        AirflowFailException, match=r"credentials of the connection 'store_\w+_stranger'"
    ) as error:
        attempts.run(transfer(uuid, f"{store.stranger}x.txt"))
    assert isinstance(error.value, exc.ComplianceStorageDeniedError)
    assert store.keys() == set()


def test_no_credentials_say_to_name_a_connection(
    service: Emulator, attempts: Attempts, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.kind != "seaweedfs":
        pytest.skip("only SeaweedFS knows strangers and refuses them as Amazon does")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert store.server
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", store.server.url)
    bucket = store.base.partition("@")[2]
    uuid = completed(service, text="x")
    with pytest.raises(
        AirflowFailException, match=r"environment of the worker has credentials.*s3://conn_id@"
    ):
        attempts.run(transfer(uuid, f"s3://{bucket}x.txt"))
