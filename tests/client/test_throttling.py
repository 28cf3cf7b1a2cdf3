"""A service that asks for a pause gets it, from the whole process, on both clients over real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.base import get_shared_state
from tests.support.service import Reply, Service
from tests.support.values import CONTENT, UUID, settings_for

STATUS = f"GET {CONTENT}/{UUID}/status"
FRAMEWORKS = "GET /api/v1/frameworks"


@pytest.mark.parametrize("status", [429, 503])
def test_a_pause_longer_than_a_call_s_patience_costs_one_request(
    connect: Any, service: Service, status: int
) -> None:
    service.on(STATUS, Reply(status, headers={"Retry-After": "900"}))
    service.on(FRAMEWORKS, Reply(json=[]))
    settings = settings_for(service.url)
    run = connect(settings)
    for method, args in [("get_status", (UUID,)), ("list_frameworks", ()), ("get_status", (UUID,))] * 2:
        with pytest.raises(exc.ComplianceThrottledError) as caught:
            run(method, *args)
        assert caught.value.transient
        assert 600 < (caught.value.retry_after or 0) <= 900
    assert len(service.requests_to(STATUS)) == 1
    assert not service.requests_to(FRAMEWORKS)
    assert get_shared_state(settings).service_pause.count == 1


def test_throttled_login_pauses_logins_only(connect: Any, service: Service) -> None:
    settings = settings_for(service.url)
    service.on("POST /token", Reply(429, headers={"Retry-After": "900"}))
    run = connect(settings)
    for _ in range(3):
        with pytest.raises(exc.ComplianceThrottledError):
            run("list_frameworks")
    assert len(service.requests_to("POST /token")) == 1
    assert get_shared_state(settings).service_pause.count == 0
