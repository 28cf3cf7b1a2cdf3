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
def test_page_in_response_to_a_submit_is_uncertain(
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
def test_page_in_response_to_another_call_is_a_transient_protocol_error(
    run: Any, service: Service, method: str, page: str
) -> None:
    route, args = READS[method]
    service.on(route, PAGES[page])
    with pytest.raises(exc.ComplianceProtocolError) as caught:
        run(method, *args)
    assert caught.value.transient
