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
    with pytest.raises(exc.ComplianceRefusedError):
        answer(get_statuses(["a"], BatchLimit(10)), lambda call: [] if call.json else refused(403))


def test_a_refusal_of_one_job_is_not_hidden_by_others() -> None:
    def reply(call: Call[Any]) -> Any:
        return jobs("a") if call.json else refused(403)

    with pytest.raises(exc.ComplianceRefusedError):
        answer(get_statuses(["a", "b"], BatchLimit(10)), reply)


class Answers:
    """Carries out one request for statuses after the other, with a clock."""

    def __init__(self, reply: Callable[[Call[Any]], Any], maximum: int = 500) -> None:
        self.now = 0.0
        self.seconds = 0.1  # that each answer takes
        self.limit = BatchLimit(maximum, lambda: self.now)
        self._reply = reply

    def ask(self, count: int) -> list[int]:
        """Ask for this many; return the sizes of the requests: 0 is one that asks for a job alone."""
        uuids = [f"u{number}" for number in range(count)]
        found, asked = answer(get_statuses(uuids, self.limit), self._timed)
        assert list(found) == uuids
        return [len(each) if isinstance(each, list) else 0 for each in asked]

    def _timed(self, call: Call[Any]) -> Any:
        self.now += self.seconds
        return self._reply(call)


def test_batches_grow_while_the_service_takes_them() -> None:
    answers = Answers(up_to(10_000, 413))
    assert answers.ask(99) == [99]
    assert answers.ask(50) == [50]
    assert answers.limit.size == 100
    assert answers.ask(2000) == [100, 200, 400, 500, 500, 300]
    assert answers.ask(2000) == [500] * 4


@pytest.mark.parametrize(("maximum", "sizes"), [(30, [30, 30]), (100, [60]), (150, [60])])
def test_batches_never_exceed_the_setting(maximum: int, sizes: list[int]) -> None:
    answers = Answers(up_to(10_000, 413), maximum)
    assert answers.ask(60) == sizes
    answers.ask(1000)
    assert max(answers.ask(1000)) == maximum


@pytest.mark.parametrize(
    "error",
    [
        *(refused(status) for status in (400, 403, 413, 414, 422, 431)),
        exc.ComplianceNotFoundError("no", status=404),
        exc.ComplianceServerError("no", status=500),
        exc.ComplianceConnectionError("timed out"),
        exc.ComplianceProtocolError("the page of a proxy"),
    ],
)
def test_a_larger_batch_that_fails_in_any_way_is_asked_for_as_before(error: Exception) -> None:
    def reply(call: Call[Any]) -> Any:
        return error if len(call.json["uuids"]) > 100 else jobs(*call.json["uuids"])

    answers = Answers(reply)
    assert answers.ask(300) == [100, 200, 100, 100]
    answers.now += 3590
    assert answers.ask(300) == [100] * 3  # not again so soon
    answers.now += 20
    assert answers.ask(300) == [100, 200, 100, 100]


def test_a_larger_batch_that_is_throttled_is_not_sent_in_parts_at_once() -> None:
    throttled = exc.ComplianceThrottledError("slow down", status=429)
    answers = Answers(lambda call: throttled if len(call.json["uuids"]) > 100 else jobs(*call.json["uuids"]))
    with pytest.raises(exc.ComplianceThrottledError):
        answers.ask(300)
    assert answers.ask(300) == [100] * 3


def test_credentials_have_nothing_to_do_with_the_size() -> None:
    answers = Answers(up_to(10_000, 413))
    answers.ask(100)
    with pytest.raises(exc.ComplianceAuthError):
        answer(
            get_statuses(map(str, range(200)), answers.limit),
            lambda _: exc.ComplianceAuthError("no"),
        )
    assert answers.ask(200) == [200]


def test_an_outage_does_not_lower_the_usual_size() -> None:
    answers = Answers(lambda _: exc.ComplianceServerError("away", status=503))
    with pytest.raises(exc.ComplianceServerError):
        answers.ask(300)
    assert answers.limit.size == 100


def test_an_outage_does_not_lower_a_size_that_has_worked() -> None:
    answers = Answers(up_to(10_000, 413), maximum=200)
    assert answers.ask(300) == [100, 200]
    with pytest.raises(exc.ComplianceServerError):
        answer(
            get_statuses(map(str, range(200)), answers.limit),
            lambda _: exc.ComplianceServerError("away", status=503),
        )
    assert answers.ask(200) == [200]


def test_batches_do_not_grow_beyond_what_is_answered_quickly() -> None:
    answers = Answers(up_to(10_000, 413))
    answers.seconds = 1.5
    assert answers.ask(300) == [100] * 3


def test_a_size_that_was_halved_grows_again_after_an_hour() -> None:
    answers = Answers(up_to(30, 413))
    assert answers.ask(100) == [100, 50, 25, 25, 25, 25]
    assert answers.ask(100) == [25] * 4
    answers.now += 3600
    assert answers.ask(100) == [25, 50, 25, 25, 25]
    assert answers.ask(100) == [25] * 4


def truncating(size: int) -> Callable[[Call[Any]], Any]:
    return lambda call: jobs(*call.json["uuids"][:size])


def test_a_larger_batch_that_is_truncated_is_noticed_and_nothing_is_lost() -> None:
    answers = Answers(truncating(100))
    assert answers.ask(300) == [100, 200, 100]
    assert answers.ask(300) == [100] * 3


def test_jobs_over_a_silent_limit_are_requested_in_smaller_batches() -> None:
    answers = Answers(truncating(20))
    sizes = answers.ask(100)
    assert sizes[:2] == [100, 50]
    assert 0 not in sizes
    assert len(sizes) < 12


def test_unknown_jobs_cost_one_request_each_and_few_more() -> None:
    def reply(call: Call[Any]) -> Any:
        return [] if call.json else exc.ComplianceNotFoundError("no", status=404)

    found, asked = answer(get_statuses(map(str, range(100)), BatchLimit(500)), reply)
    assert found == {}
    assert [len(each) for each in asked if isinstance(each, list)] == [100, 50, 50]
    assert len(asked) == 103


def test_job_that_is_listed_twice_has_its_first_final_state() -> None:
    states = [("a", "PENDING"), ("a", "FAILED"), ("a", "COMPLETED"), ("a", "RUNNING"), ("b", "PENDING")]
    records = [{"uuid": uuid, "status": status} for uuid, status in states]
    listed = get_batch(["a", "b"]).parse(HttpResponse(200, {}, json.dumps(records).encode()))
    assert [(job.uuid, job.status) for job in listed] == [("a", "FAILED"), ("b", "PENDING")]


@pytest.mark.parametrize(("missing", "asked"), [(4, [10, 0, 0, 0, 0]), (5, [10, 5])])
def test_up_to_four_missing_jobs_are_requested_alone(missing: int, asked: list[int]) -> None:
    def reply(call: Call[Any]) -> Any:
        if not call.json:
            return jobs(call.path.split("/")[-2])[0]
        return jobs(*call.json["uuids"][: 10 - missing])

    assert Answers(reply).ask(10) == asked


def test_redirect_that_does_not_name_the_job_is_confirmed() -> None:
    doubtful = UnconfirmedRedirectError("to a login page")
    found, asked = answer(get_status("a"), lambda call: jobs("A") if call.json else doubtful)
    assert (found.uuid, asked) == ("a", ["a", ["a"]])
    with pytest.raises(UnconfirmedRedirectError):
        answer(get_status("a"), lambda call: [] if call.json else doubtful)


def at_most(limit: int, status: int = 413) -> Callable[[Received], Reply]:
    def answer(request: Received) -> Reply:
        uuids = request.json["uuids"]
        if len(uuids) > limit:
            return Reply(status)
        return Reply(json=[{"uuid": uuid, "status": "COMPLETED"} for uuid in reversed(uuids)])

    return answer


def test_any_number_is_asked_for_in_batches(run: Any, service: Service) -> None:
    service.on(BATCH, at_most(500))
    uuids = [f"u{n}" for n in range(350)]
    jobs = run("get_statuses", iter([*uuids, "u0"]))
    assert list(jobs) == uuids
    assert {job.status for job in jobs.values()} == {"COMPLETED"}
    assert [len(r.json["uuids"]) for r in service.requests_to(BATCH)] == [100, 200, 50]


def test_ids_that_differ_in_case_only_are_different_jobs(run: Any, service: Service) -> None:
    states = {"abc": "COMPLETED", "ABC": "FAILED", "Abc": "RUNNING"}
    service.on(BATCH, Reply(json=[{"uuid": uuid, "status": status} for uuid, status in states.items()]))
    jobs = run("get_statuses", [*states, "aBC"])
    assert {uuid: job.status for uuid, job in jobs.items()} == states
