"""A renewal that brings no new refresh token, as identity providers answer that do not rotate them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from airflow_provider.client.http.wire import HttpResponse, reveal
from airflow_provider.client.settings import Settings
from airflow_provider.client.tokens import TokenCache
from tests.support.clock import ManualClock


def renew(cache: TokenCache, answer: dict[str, Any]) -> Mapping[str, str]:
    """Carry out a renewal of one request; return the form that was posted."""
    renewal = cache.renew()
    call = next(renewal)
    try:
        renewal.send(call.parse(HttpResponse(200, {}, json.dumps(answer).encode())))
    except StopIteration:
        return {name: reveal(value) for name, value in (call.form or {}).items()}
    raise AssertionError("one request was not enough")


def test_the_refresh_token_stays_when_a_renewal_brings_none() -> None:
    address = "http://127.0.0.1"
    settings = Settings(address, address, "alice", SecretStr("password"), "airflow", SecretStr("secret"))
    cache, life = TokenCache(settings, ManualClock()), {"expires_in": 3600}
    assert renew(cache, {"access_token": "a1", "refresh_token": "r1", **life})["grant_type"] == "password"
    # RFC 6749, section 6: the old one is discarded when a new one is issued.
    for number in (2, 3):
        assert renew(cache, {"access_token": f"a{number}", **life})["refresh_token"] == "r1"
    assert renew(cache, {"access_token": "a4", "refresh_token": "r2", **life})["refresh_token"] == "r1"
    assert renew(cache, {"access_token": "a5", **life})["refresh_token"] == "r2"
