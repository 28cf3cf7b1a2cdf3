"""What attempts of a task tell each other: rules about owners, clears and inputs, without a service."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.exceptions import (
    ComplianceStateError,
    ComplianceStorageDeniedError,
    ComplianceSupersededError,
)
from airflow_provider.storage import task_state
from airflow_provider.storage.locations import Location
from airflow_provider.storage.task_state import (
    JOB_KEY,
    ObjectStateStore,
    StoredJob,
    SubmitState,
    open_state_store,
)
from tests.support.attempts import StateStore

LOG = logging.getLogger(__name__)
TI = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=2, max_tries=3)


def state_of(stored: Any, **ti: Any) -> SubmitState:
    store = StateStore() if stored is None else StateStore(**{JOB_KEY: stored})
    return SubmitState(lambda: store, SimpleNamespace(**{**vars(TI), **ti}), LOG)


@pytest.mark.parametrize(
    ("stored", "is_owner", "error"),
    [
        (None, False, None),  # Airflow returns nothing to an attempt that has been superseded
        ({}, False, None),
        ({"uuid": "j", "try_number": 2}, True, None),
        ({"uuid": "other", "try_number": 2}, False, None),
        ({"intent": "now", "try_number": 2}, True, None),  # it could not store which job it got
        ({"uuid": "j", "try_number": 1}, False, None),
        ({"uuid": "j", "try_number": 3}, False, ComplianceSupersededError),
        (["j"], False, ComplianceStateError),
        ({"uuid": 5, "try_number": 2}, False, ComplianceStateError),
    ],
)
def test_an_attempt_owns_the_job_that_it_has_stored(
    stored: Any, is_owner: bool, error: type[Exception] | None
) -> None:
    state = state_of(stored)
    assert state.owns("j") is is_owner
    if error:
        with pytest.raises(error, match=r"See the log of the other one|Check at the service"):
            state.read()
    else:
        assert state.read() == StoredJob.parse(stored or {})


@pytest.mark.parametrize(
    ("stored", "is_cleared"),
    [
        ({"try_number": 1, "max_tries": 3}, False),  # a retry
        ({"try_number": 1, "max_tries": 2}, True),
        ({"try_number": 1}, False),
        ({"try_number": 2, "max_tries": 3}, True),  # the run was deleted and created again
        ({"try_number": "2", "max_tries": 3}, False),
        ({}, False),
    ],
)
def test_a_clear_raises_the_number_of_tries_and_a_retry_does_not(
    stored: dict[str, Any], is_cleared: bool
) -> None:
    assert state_of(None).is_cleared(StoredJob.parse(stored)) is is_cleared


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({}, True),
        ({"source": "other"}, False),
        ({"account": "other"}, False),
        ({"fingerprint": "other"}, False),
        ({"fingerprint": None}, True),  # unknown
    ],
)
def test_input_is_the_same_unless_source_account_or_fingerprint_differ(
    change: dict[str, Any], is_same: bool
) -> None:
    given = StoredJob(source="s", account="a", fingerprint="f")
    assert replace(given, **change).has_same_input(given) is is_same
    assert given.has_same_input(replace(given, **change)) is is_same


def test_nothing_is_stored_without_a_store() -> None:
    state = SubmitState(lambda: None, TI, LOG)
    state.save(StoredJob(uuid="j"))
    assert state.owns("j")
    assert state.read() == StoredJob()
    assert not state.survives_clear


@pytest.mark.parametrize(("stored", "is_replaced"), [(None, True), ([], True), ({"try_number": 9}, False)])
def test_an_attempt_replaces_damage_and_not_a_newer_attempt(
    caplog: pytest.LogCaptureFixture, stored: Any, is_replaced: bool
) -> None:
    state = state_of(stored)
    state.save(StoredJob(uuid="j"))
    kept = {"uuid": "j", "try_number": 2, "started_at": 0.0, "max_tries": 3}
    assert state.store[JOB_KEY] == (kept if is_replaced else stored)
    assert ("may submit again" in caplog.text) is not is_replaced
    if not is_replaced:
        with pytest.raises(ComplianceSupersededError):
            state.save(StoredJob(uuid="j"), ComplianceSupersededError)


@pytest.mark.parametrize("keeps", [True, False])
def test_state_survives_a_clear_in_object_storage_and_where_airflow_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    monkeypatch.setattr(task_state, "CLEAR_KEEPS_STATE", keeps)
    assert state_of(None).survives_clear is keeps
    store = ObjectStateStore(Location(str(tmp_path)))
    assert SubmitState(lambda: store, TI, LOG).survives_clear


@pytest.mark.parametrize(
    ("state_path", "destination", "found"),
    [
        ("{}/state/", "memory://b/out/", "{}/state/d/r/t-*/k.json"),
        ("", "{}/out/", None),  # other workers may not see a local disk
        ("", None, None),
    ],
)
def test_state_is_at_the_state_path_else_in_airflow(
    tmp_path: Path, state_path: str, destination: str | None, found: str | None
) -> None:
    hook: Any = SimpleNamespace(state_path=state_path.format(tmp_path))
    airflow = StateStore()
    context = {"ti": TI, "task_state_store": airflow}
    store = open_state_store(context, hook, destination and destination.format(tmp_path))
    assert (store is airflow) is (found is None)
    store.set("k", {"a": 1})
    assert store.get("k") == {"a": 1}
    assert store.get("other", "default") == "default"
    assert len(list(tmp_path.glob("state/d/r/t-*/k.json"))) == (found is not None)


@pytest.mark.parametrize(("uri", "folder"), [("s3://b/out/x.json", "b/out"), ("s3://b/out/", "b/out")])
def test_state_is_beside_an_object_or_below_a_prefix(
    monkeypatch: pytest.MonkeyPatch, uri: str, folder: str
) -> None:
    monkeypatch.setattr(Location, "fs", None)
    store = open_state_store({"ti": TI}, SimpleNamespace(state_path=""), uri)  # type: ignore[arg-type]  # a stand-in
    assert store._locate("a/b").path.startswith(f"{folder}/_work/state/d/r/t-")
    assert store._locate("a/b").path.endswith("/a_b.json")


def test_damaged_state_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text("{")
    with pytest.raises(ComplianceStateError, match=r"k.json' is damaged.+Restore it"):
        ObjectStateStore(Location(str(tmp_path))).get("k")


class Unlistable:
    """A bucket that its credentials may not list, so that a missing object is denied."""

    def __init__(self, *, is_readable: bool) -> None:
        self.is_readable, self.written = is_readable, dict[str, bytes]()

    def cat_file(self, path: str) -> bytes:
        if path in self.written and self.is_readable:
            return self.written[path]
        raise PermissionError(path)


@pytest.mark.parametrize("is_readable", [True, False])
@pytest.mark.parametrize("scheme", ["s3", "sftp"])
def test_a_missing_object_is_denied_where_a_bucket_may_not_be_listed(
    monkeypatch: pytest.MonkeyPatch, scheme: str, is_readable: bool
) -> None:
    bucket = Unlistable(is_readable=is_readable)
    monkeypatch.setattr(Location, "fs", bucket)
    monkeypatch.setattr(
        task_state, "put_sync", lambda location, data: bucket.written.update({location.path: data})
    )
    store = ObjectStateStore(Location(f"{scheme}://b/state"))
    if scheme == "s3" and is_readable:
        assert store.get("k", "default") == "default"
        assert bucket.written == {"b/state/access.json": b"{}"}
    else:
        with pytest.raises(ComplianceStorageDeniedError):
            store.get("k")
