"""A page or a redirect of something before the service is never the service's answer; on both clients."""

from __future__ import annotations

import io
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from tests.support.service import Reply, Service
from tests.support.values import CONTENT, PDF, UUID

HTML = {"Content-Type": "text/html; charset=utf-8"}
PAGES = {
    "page": Reply(body=b"<html>Sign in</html>", headers=HTML),
    "xhtml": Reply(body=b"<html/>", headers={"Content-Type": "application/xhtml+xml"}),
    "accepted page": Reply(202, body=b"<html>Sign in</html>", headers=HTML),
    "page with a Location": Reply(body=b"<html>", headers={**HTML, "Location": f"{CONTENT}/login/status"}),
    "redirect": Reply(302, headers={"Location": "/maintenance.html"}),
}
SUBMITS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "submit_url": (f"POST {CONTENT}/url", ("https://example.com",)),
    "submit_file": (f"POST {CONTENT}/file", (PDF,)),
    "refresh": (f"POST {CONTENT}/{UUID}/refresh", (UUID,)),
    "submit_feedback": ("POST /api/v1/assessmentFeedback", ("e", "r")),
    "submit_assessment": ("POST /api/v1/assessments", ({},)),
}
READS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "get_status": (f"GET {CONTENT}/{UUID}/status", (UUID,)),
    "get_statuses": (f"POST {CONTENT}/status/batch", ([UUID],)),
    "get_content": (f"GET {CONTENT}/{UUID}/content", (UUID,)),
    "cancel": (f"DELETE {CONTENT}/{UUID}", (UUID,)),
    "cancel_assessment": ("DELETE /api/v1/assessments/1", ("1",)),
    "list_frameworks": ("GET /api/v1/frameworks", ()),
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("method", SUBMITS)
def test_on_a_submit_it_is_uncertain_and_nobody_claims_that_it_was_taken(
    run: Any, service: Service, method: str, page: str
) -> None:
    route, args = SUBMITS[method]
    service.on(route, PAGES[page])
    with pytest.raises(exc.ComplianceUncertainError, match="may or may not have accepted it") as caught:
        run(method, *(io.BytesIO(arg) if arg is PDF else arg for arg in args))
    assert "accepted the submit" not in str(caught.value)
    assert caught.value.transient
    assert len(service.requests_to(route)) == 1


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("method", READS)
def test_on_anything_else_it_is_an_odd_answer_that_may_pass(
    run: Any, service: Service, method: str, page: str
) -> None:
    route, args = READS[method]
    service.on(route, PAGES[page])
    with pytest.raises(exc.ComplianceProtocolError) as caught:
        run(method, *args)
    assert caught.value.transient


def test_a_submit_that_is_answered_with_no_json_is_uncertain(run: Any, service: Service) -> None:
    service.on(f"POST {CONTENT}/url", Reply(200, body=b"OK", headers={"Content-Type": "text/plain"}))
    with pytest.raises(exc.ComplianceUncertainError) as caught:
        run("submit_url", "https://example.com")
    assert "accepted the submit" not in str(caught.value)


@pytest.mark.parametrize("answer", [Reply(202, json={}), Reply(202, json=[]), Reply(202)], ids=str)
@pytest.mark.parametrize("method", ["submit_url", "submit_assessment"])
def test_a_submit_that_was_taken_without_an_id_ends_for_good_because_a_retry_would_submit_again(
    run: Any, service: Service, method: str, answer: Reply
) -> None:
    route, args = SUBMITS[method]
    service.on(route, answer)
    with pytest.raises(exc.ComplianceProtocolError, match="accepted the submit") as caught:
        run(method, *args)
    assert not caught.value.transient
    assert len(service.requests_to(route)) == 1


@pytest.mark.parametrize("answer", [Reply(200), Reply(200, json={"message": "ok"}), Reply(204)], ids=str)
def test_a_submit_that_is_answered_without_an_id_by_another_status_is_uncertain(
    run: Any, service: Service, answer: Reply
) -> None:
    route, args = SUBMITS["submit_url"]
    service.on(route, answer)
    with pytest.raises(exc.ComplianceUncertainError, match=r"without an id\. The service may or may not"):
        run("submit_url", *args)
    assert len(service.requests_to(route)) == 1


@pytest.mark.parametrize(
    "location", ["https://sso.example/login", "/login", f"/login?next={CONTENT}/{UUID}/status"]
)
def test_a_redirect_to_a_login_page_does_not_complete_a_job(
    run: Any, service: Service, location: str
) -> None:
    route, args = READS["get_status"]
    service.on(route, Reply(303, headers={"Location": location}))
    with pytest.raises(exc.ComplianceProtocolError, match="login page") as caught:
        run("get_status", *args)
    assert caught.value.transient


@pytest.mark.parametrize(
    "location", [f"http://internal:8080{CONTENT}/{UUID.upper()}/content", f"../{UUID}/content"]
)
def test_a_redirect_to_the_text_of_a_job_completes_it_on_any_host(
    run: Any, service: Service, location: str
) -> None:
    route, args = READS["get_status"]
    service.on(route, Reply(303, headers={"Location": location}))
    assert run("get_status", *args).status == "COMPLETED"


def test_a_redirect_to_another_host_does_not_complete_an_assessment(run: Any, service: Service) -> None:
    service.on(
        "GET /api/v1/assessments/7/status",
        Reply(303, headers={"Location": "https://sso.example/login"}),
        Reply(303, headers={"Location": "/api/v1/results/99"}),
    )
    with pytest.raises(exc.ComplianceProtocolError, match="login page"):
        run("get_assessment", "7")
    assert run("get_assessment", "7").status == "COMPLETED"


@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, json={"message": "the backend is away"}),
        Reply(200, body=b"{}", headers={"Content-Type": "application/problem+json"}),
        Reply(200, body=b"<fault/>", headers={"Content-Type": "text/xml"}),
        Reply(200),
        Reply(202, body=b"", headers={"Content-Type": "text/plain"}),
        Reply(206, body=b"half", headers={"Content-Type": "text/plain"}),
    ],
    ids=str,
)
def test_an_error_message_or_a_part_is_not_a_text(run: Any, service: Service, answer: Reply) -> None:
    route, args = READS["get_content"]
    service.on(route, answer)
    for method, arguments in (("get_content", args), ("download_content", (*args, io.BytesIO()))):
        with pytest.raises(exc.ComplianceProtocolError) as caught:
            run(method, *arguments)
        assert caught.value.transient


def test_results_that_are_not_ready_are_an_error(run: Any, service: Service) -> None:
    service.on("GET /api/v1/assessments/7/results", Reply(202, json={"status": "RUNNING"}))
    with pytest.raises(exc.ComplianceProtocolError, match="202 Accepted, not the result"):
        run("get_assessment_results", "7")


def test_a_redirect_that_is_the_answer_may_have_a_page_in_it(run: Any, service: Service) -> None:
    route, args = READS["get_status"]
    service.on(route, Reply(303, body=b"<html>See there</html>", headers=HTML))
    assert run("get_status", *args).status == "COMPLETED"


def test_any_other_call_may_get_a_page(run: Any, service: Service) -> None:
    service.on("POST /help", PAGES["page"])
    assert run("request", "POST", "/help").body == b"<html>Sign in</html>"
