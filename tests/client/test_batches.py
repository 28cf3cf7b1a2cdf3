"""The status of any number of jobs: without I/O, and on both clients over real sockets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.batches import BatchLimit, get_status, get_statuses
from airflow_provider.client.endpoints import get_batch
from airflow_provider.client.http.wire import Call, HttpResponse
from airflow_provider.client.models import ContentJob
from airflow_provider.client.responses import UnconfirmedRedirectError
from tests.support.service import Received, Reply, Service
from tests.support.values import CONTENT

BATCH = f"POST {CONTENT}/status/batch"


def answer(flow: Any, reply: Callable[[Call[Any]], Any]) -> tuple[Any, list[Any]]:
    """Carry out a flow; return its result and what was asked."""
    asked: list[Any] = []
    result: Any = None
    while True:
        try:
            call = flow.throw(result) if isinstance(result, Exception) else flow.send(result)
        except StopIteration as end:
            return end.value, asked
        asked.append(call.json["uuids"] if call.json else call.path.split("/")[-2])
        result = reply(call)


def jobs(*uuids: str) -> list[ContentJob]:
    return [ContentJob.model_validate({"uuid": uuid, "status": "RUNNING"}) for uuid in uuids]


def refused(status: int) -> exc.ComplianceRefusedError:
    return exc.ComplianceRefusedError("no", status=status)


def up_to(size: int, status: int) -> Callable[[Call[Any]], Any]:
    def reply(call: Call[Any]) -> Any:
        uuids = call.json["uuids"]
        return jobs(*uuids) if len(uuids) <= size else refused(status)

    return reply


@pytest.mark.parametrize(
    ("status", "size", "asked"),
    [
        *((status, 2, ["abcdef", "abc", "ab", "c", "de", "f"]) for status in (413, 414, 431)),
        (400, 2, ["abcdef", "abc", "ab", "c", "def", "de", "f"]),
    ],
)
def test_a_batch_that_is_too_large_is_halved(status: int, size: int, asked: list[str]) -> None:
    limit = BatchLimit(10)
    found, batches = answer(get_statuses(list("abcdef"), limit), up_to(size, status))
    assert list(found) == list("abcdef")
    assert ["".join(each) for each in batches] == asked
    assert limit.size == 2


def test_the_known_limit_splits_a_batch() -> None:
    found, batches = answer(get_statuses(iter("abcdea"), BatchLimit(2)), up_to(2, 413))
    assert batches == [["a", "b"], ["c", "d"], ["e"]]
    assert [each.uuid for each in found.values()] == list("abcde")
    assert answer(get_statuses("ab", BatchLimit(2)), up_to(2, 413))[1] == [["ab"]]
    assert answer(get_statuses([], BatchLimit(2)), up_to(2, 413)) == ({}, [])


def test_a_batch_of_one_that_is_too_large_is_an_error() -> None:
    with pytest.raises(exc.ComplianceRefusedError):
        answer(get_statuses("a", BatchLimit(2)), up_to(0, 413))
    with pytest.raises(exc.ComplianceRefusedError):
        answer(get_statuses(["a", "b"], BatchLimit(2)), up_to(0, 422))


def test_a_malformed_id_is_left_out_and_does_not_lower_the_limit() -> None:
    def reply(call: Call[Any]) -> Any:
        if call.json is None or "x" in call.json["uuids"]:
            return refused(400)
        return jobs(*call.json["uuids"])

    limit = BatchLimit(10)
    found, _ = answer(get_statuses(["a", "b", "x", "c"], limit), reply)
    assert (list(found), limit.size) == (["a", "b", "c"], 10)
    with pytest.raises(exc.ComplianceRefusedError):
        answer(get_statuses(["x"], limit), reply)


def test_the_refusal_of_a_small_batch_does_not_lower_the_limit() -> None:
    limit = BatchLimit(100)
    found, asked = answer(get_statuses(["a", "b"], limit), up_to(1, 400))
    assert (list(found), limit.size) == (["a", "b"], 100)
    assert asked == [["a", "b"], ["a"], ["b"]]
    answer(get_statuses([f"u{number}" for number in range(100)], limit), up_to(10, 400))
    assert limit.size == 7


def test_an_unknown_id_for_which_a_batch_is_refused_does_not_lower_the_limit() -> None:
    def reply(call: Call[Any]) -> Any:
        if call.json is None:
            return exc.ComplianceNotFoundError("no", status=404)
        return refused(400) if "x" in call.json["uuids"] else jobs(*call.json["uuids"])

    limit = BatchLimit(100)
    asked_for = [*(f"u{number}" for number in range(99)), "x"]
    found, _ = answer(get_statuses(asked_for, limit), reply)
    assert (list(found), limit.size) == (asked_for[:-1], 100)


def test_job_missing_in_a_batch_is_requested_alone() -> None:
    def reply(call: Call[Any]) -> Any:
        if call.json:
            return jobs("A")
        return exc.ComplianceNotFoundError("no", status=404) if "/c/" in call.path else jobs("b")[0]

    found, asked = answer(get_statuses(["a", "c", "b"], BatchLimit(10)), reply)
    assert asked == [["a", "c", "b"], "c", "b"]
    assert {key: each.uuid for key, each in found.items()} == {"a": "a", "b": "b"}
    with pytest.raises(exc.ComplianceRefusedError):  # a refusal of one job is not hidden by others
        answer(
            get_statuses(["a", "b"], BatchLimit(10)), lambda call: jobs("a") if call.json else refused(403)
        )


def sizes_of(asked: list[Any]) -> list[int]:
    """Return the sizes of requests: 0 is one that asks for a job alone."""
    return [len(each) if isinstance(each, list) else 0 for each in asked]


def test_a_lowered_limit_is_the_usual_one_again_after_an_hour() -> None:
    now = [0.0]
    limit = BatchLimit(100, lambda: now[0])

    def ask() -> list[int]:
        found, asked = answer(get_statuses(map(str, range(100)), limit), up_to(30, 413))
        assert len(found) == 100
        return sizes_of(asked)

    assert ask() == [100, 50, 25, 25, 25, 25]
    now[0] += 3599
    assert ask() == [25] * 4
    now[0] += 1
    assert ask() == [100, 50, 25, 25, 25, 25]


@pytest.mark.parametrize(
    "error",
    [
        exc.ComplianceServerError("away", status=503),
        exc.ComplianceThrottledError("slow down", status=429),
        exc.ComplianceAuthError("no"),
        exc.ComplianceNotFoundError("no", status=404),
        refused(422),
    ],
)
def test_an_error_that_is_not_about_the_size_is_raised_and_changes_no_limit(error: Exception) -> None:
    limit = BatchLimit(100)
    with pytest.raises(type(error)):
        answer(get_statuses(map(str, range(100)), limit), lambda _: error)
    assert limit.size == 100


@pytest.mark.parametrize(
    ("answered", "asked"),
    [
        (96, [100, 0, 0, 0, 0]),  # a few that are missing are asked for alone
        (95, [100, 5]),
        (50, [100, 50]),  # the service may have left out what is over its limit
        (20, [100, 50, 25, 5, 5, 30, 10]),
    ],
)
def test_jobs_over_a_silent_limit_are_requested_in_smaller_batches(answered: int, asked: list[int]) -> None:
    def reply(call: Call[Any]) -> Any:
        if not call.json:
            return jobs(call.path.split("/")[-2])[0]
        return jobs(*call.json["uuids"][:answered])

    found, batches = answer(get_statuses(map(str, range(100)), BatchLimit(100)), reply)
    assert len(found) == 100
    assert sizes_of(batches) == asked


def test_unknown_jobs_cost_one_request_each_and_few_more() -> None:
    def reply(call: Call[Any]) -> Any:
        return [] if call.json else exc.ComplianceNotFoundError("no", status=404)

    found, asked = answer(get_statuses(map(str, range(100)), BatchLimit(100)), reply)
    assert found == {}
    assert sizes_of(asked) == [100, 50, *[0] * 50, 50, *[0] * 50]


def test_job_that_is_listed_twice_has_its_first_final_state() -> None:
    states = [("a", "PENDING"), ("a", "FAILED"), ("a", "COMPLETED"), ("a", "RUNNING"), ("b", "PENDING")]
    records = [{"uuid": uuid, "status": status} for uuid, status in states]
    listed = get_batch(["a", "b"]).parse(HttpResponse(200, {}, json.dumps(records).encode()))
    assert [(job.uuid, job.status) for job in listed] == [("a", "FAILED"), ("b", "PENDING")]


def test_redirect_that_does_not_name_the_job_is_confirmed() -> None:
    doubtful = UnconfirmedRedirectError("to a login page")
    found, asked = answer(get_status("a"), lambda call: jobs("A") if call.json else doubtful)
    assert (found.uuid, asked) == ("a", ["a", ["a"]])
    with pytest.raises(UnconfirmedRedirectError, match="to a login page"):
        answer(get_status("a"), lambda call: [] if call.json else doubtful)


def test_any_number_is_asked_for_in_batches(run: Any, service: Service) -> None:
    def reply(request: Received) -> Reply:
        return Reply(json=[{"uuid": uuid, "status": "COMPLETED"} for uuid in reversed(request.json["uuids"])])

    service.on(BATCH, reply)
    uuids = [f"u{n}" for n in range(250)]
    jobs = run("get_statuses", iter([*uuids, "u0"]))
    assert list(jobs) == uuids
    assert {job.status for job in jobs.values()} == {"COMPLETED"}
    assert [len(r.json["uuids"]) for r in service.requests_to(BATCH)] == [100, 100, 50]


def test_ids_that_differ_in_case_only_are_different_jobs(run: Any, service: Service) -> None:
    states = {"abc": "COMPLETED", "ABC": "FAILED", "Abc": "RUNNING"}
    service.on(BATCH, Reply(json=[{"uuid": uuid, "status": status} for uuid, status in states.items()]))
    jobs = run("get_statuses", [*states, "aBC"])
    assert {uuid: job.status for uuid, job in jobs.items()} == states
