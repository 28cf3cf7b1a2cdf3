"""Batch status in any number, on both clients over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from tests.support.service import Received, Reply, Service
from tests.support.values import CONTENT, settings_for

BATCH = f"POST {CONTENT}/status/batch"


def at_most(limit: int, status: int = 413) -> Callable[[Received], Reply]:
    def answer(request: Received) -> Reply:
        uuids = request.json["uuids"]
        if len(uuids) > limit:
            return Reply(status)
        return Reply(json=[{"uuid": uuid, "status": "COMPLETED"} for uuid in reversed(uuids)])

    return answer


def test_any_number_is_asked_for_in_batches(run: Any, service: Service) -> None:
    service.on(BATCH, at_most(100))
    uuids = [f"u{n}" for n in range(250)]
    jobs = run("get_statuses", iter([*uuids, "u0"]))
    assert list(jobs) == uuids
    assert {job.status for job in jobs.values()} == {"COMPLETED"}
    assert [len(r.json["uuids"]) for r in service.requests_to(BATCH)] == [100, 100, 50]


def test_one_uuid_may_be_given_as_it_is(run: Any, service: Service) -> None:
    service.on(BATCH, at_most(100))
    assert list(run("get_statuses", "u1")) == ["u1"]
    assert [r.json["uuids"] for r in service.requests_to(BATCH)] == [["u1"]]


def test_no_uuids_need_no_request(run: Any, service: Service) -> None:
    assert run("get_statuses", []) == {}
    assert not service.received


@pytest.mark.parametrize(
    ("status", "sizes"),
    [(413, [100, 50, 25, 25, 25, 25, 20]), (400, [100, 50, 25, 25, 50, 25, 25, 20])],
)
def test_a_batch_that_is_too_large_is_halved_and_the_size_remembered(
    connect: Any, service: Service, status: int, sizes: list[int]
) -> None:
    service.on(BATCH, at_most(30, status))
    settings = settings_for(service.url)
    uuids = [f"u{n}" for n in range(120)]
    assert list(connect(settings)("get_statuses", uuids)) == uuids
    assert [len(r.json["uuids"]) for r in service.requests_to(BATCH)] == sizes
    service.received.clear()
    connect(settings)("get_statuses", uuids[:40])
    assert [len(r.json["uuids"]) for r in service.requests_to(BATCH)] == [25, 15]


def test_one_malformed_uuid_is_absent_and_spoils_nothing_for_others(run: Any, service: Service) -> None:
    def strict(request: Received) -> Reply:
        return Reply(400) if "typo" in request.json["uuids"] else at_most(100)(request)

    service.on(BATCH, strict)
    service.on(f"GET {CONTENT}/typo/status", Reply(400))
    good = [f"u{n}" for n in range(99)]
    assert list(run("get_statuses", [*good[:60], "typo", *good[60:]])) == good
    assert len(service.requests_to(BATCH)) < 20
    service.received.clear()
    run("get_statuses", good)
    assert len(service.requests_to(BATCH)) == 1


@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_a_batch_that_is_refused_altogether_is_an_error(run: Any, service: Service, status: int) -> None:
    service.on(BATCH, Reply(status))
    for uuid in "abc":
        service.on(f"GET {CONTENT}/{uuid}/status", Reply(status))
    with pytest.raises(exc.ComplianceRefusedError) as caught:
        run("get_statuses", ["a", "b", "c"])
    assert caught.value.status == status


def test_a_job_that_is_refused_for_another_reason_is_an_error(run: Any, service: Service) -> None:
    service.on(BATCH, Reply(json=[]))
    service.on(f"GET {CONTENT}/a/status", Reply(403))
    with pytest.raises(exc.ComplianceRefusedError):
        run("get_statuses", ["a"])


def test_a_uuid_missing_in_the_answer_is_asked_for_alone(run: Any, service: Service) -> None:
    answer = [{"uuid": "A", "status": "FAILED", "error": "e"}, {"status": "RUNNING"}, None, 7]
    service.on(BATCH, Reply(json=answer))
    service.on(f"GET {CONTENT}/b/status", Reply(303))
    service.on(f"GET {CONTENT}/c/status", Reply(404))
    jobs = run("get_statuses", ["a", "b", "c"])
    assert {uuid: job.status for uuid, job in jobs.items()} == {"a": "FAILED", "b": "COMPLETED"}
    assert jobs["a"].uuid == "a"


def test_ids_that_differ_in_case_only_are_different_jobs(run: Any, service: Service) -> None:
    states = {"abc": "COMPLETED", "ABC": "FAILED", "Abc": "RUNNING"}
    service.on(BATCH, Reply(json=[{"uuid": uuid, "status": status} for uuid, status in states.items()]))
    jobs = run("get_statuses", [*states, "aBC"])
    assert {uuid: job.status for uuid, job in jobs.items()} == states


def test_a_batch_is_repeated_after_a_passing_fault(run: Any, service: Service) -> None:
    service.on(BATCH, Reply(502), at_most(100))
    assert list(run("get_statuses", ["a"])) == ["a"]
