"""A connection means the same from the form, from JSON and from a URI."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from airflow_provider.client.settings import Settings
from airflow_provider.exceptions import ComplianceConfigError
from airflow_provider.hooks.compliance import ComplianceHook

EXTRA: dict[str, Any] = {
    "token_url": "https://id.example.com/token",
    "client_id": "partner",
    "client_secret": "s/e c?r&e%t",
}


def settings(monkeypatch: pytest.MonkeyPatch, value: str | dict[str, Any]) -> Settings:
    text = value if isinstance(value, str) else json.dumps(value)
    monkeypatch.setenv("AIRFLOW_CONN_MINE", text)
    return ComplianceHook("mine")._settings


def connection(
    host: str = "https://api.example.com", extra: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    fields = {"conn_type": "compliance", "host": host, "login": "alice", "password": "p@ss/w:rd"}
    return {**fields, "extra": {**EXTRA, **(extra or {})}, **more}


def test_json_and_uri_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = (
        "compliance://https://alice:p%40ss%2Fw%3Ard@api.example.com:8443/partners"
        "?token_url=https%3A%2F%2Fid.example.com%2Ftoken&client_id=partner&client_secret=s%2Fe%20c%3Fr%26e%25t"
        "&timeout=5.5&max_retries=2&batch_size=10&verify=false&allow_http=true"
        "&endpoints=%7B%22application_info%22%3A%20%22%2Fv2%2Finfo%22%7D"
    )
    more = {"timeout": 5.5, "max_retries": 2, "batch_size": 10, "verify": False, "allow_http": True}
    from_json = connection(
        "https://api.example.com:8443/partners", {**more, "endpoints": {"application_info": "/v2/info"}}
    )
    parsed = settings(monkeypatch, uri)
    assert parsed == settings(monkeypatch, from_json)
    assert parsed.base_url == "https://api.example.com:8443/partners"
    assert parsed.password.get_secret_value() == "p@ss/w:rd"
    assert parsed.client_secret.get_secret_value() == "s/e c?r&e%t"
    assert parsed.endpoints.application_info == "/v2/info"
    assert (parsed.timeout, parsed.max_retries, parsed.batch_size, parsed.verify) == (5.5, 2, 10, False)


def test_a_connection_survives_airflow_s_own_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = settings(monkeypatch, connection("https://api.example.com/partners/x", {"timeout": 7}))
    uri = ComplianceHook.get_connection("mine").get_uri()
    assert settings(monkeypatch, uri) == expected


@pytest.mark.parametrize(
    ("host", "more", "base_url"),
    [
        ("https://api.example.com", {}, "https://api.example.com"),
        ("https://api.example.com/", {"port": 8443}, "https://api.example.com:8443"),
        ("https://api.example.com/a/", {"schema": "b"}, "https://api.example.com/a/b"),
        ("api.example.com", {}, "https://api.example.com"),
        ("api.example.com", {"schema": "https", "port": 1}, "https://api.example.com:1"),
        ("https://api.example.com", {"schema": "https"}, "https://api.example.com"),
        ("https://api.example.com/a", {"schema": "http"}, "https://api.example.com/a"),
        ("127.0.0.1", {"schema": "http", "port": 8080}, "http://127.0.0.1:8080"),
        ("api.example.com/a", {"schema": "b"}, "https://api.example.com/a/b"),
        (" https://api.example.com ", {}, "https://api.example.com"),
        ("http://127.0.0.1:8085", {"port": 8085}, "http://127.0.0.1:8085"),
        ("https://api.example.com:8443/a", {"port": 8443}, "https://api.example.com:8443/a"),
        ("http://[::1]:8085", {"port": 8085}, "http://[::1]:8085"),
        ("http://[::1]", {"port": 8085}, "http://[::1]:8085"),
    ],
)
def test_the_base_url_is_put_together(
    monkeypatch: pytest.MonkeyPatch, host: str, more: dict[str, Any], base_url: str
) -> None:
    assert settings(monkeypatch, connection(host, **more)).base_url == base_url


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        *(("verify", value, False) for value in ("false", "False", False, "0", "no")),
        *(("verify", value, True) for value in (None, "", "true", True)),
        ("verify", "ca/Own.pem", "ca/Own.pem"),
        *(("max_in_flight", value, None) for value in (None, "")),
        ("max_in_flight", 1, 1),
        ("max_in_flight", "25", 25),
    ],
)
def test_an_extra_is_read_in_any_spelling(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any, parsed: Any
) -> None:
    assert getattr(settings(monkeypatch, connection(extra={name: value})), name) == parsed


MISSING = "extra '{}' of the Airflow connection 'mine' is missing: set it in the field"
WRONG = "extra '{}' of the Airflow connection 'mine' has an invalid value"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host": ""}, "host .* is missing"),
        ({"login": None}, "login .* is missing"),
        ({"password": ""}, "password .* is missing"),
        ({"host": "http://api.example.com"}, "unencrypted"),
        (
            {"host": "https://api.example.com:8443/a", "port": 443},
            "has the port 8443, its field 'Port' has 443",
        ),
        ({"token_url": None}, MISSING),
        ({"client_id": ""}, MISSING),
        ({"client_secret": None}, MISSING),
        ({"timeout": "soon"}, WRONG),
        ({"max_retries": "1.5"}, WRONG),
        ({"batch_size": []}, WRONG),
        ({"max_in_flight": "many"}, WRONG),
        ({"max_in_flight": "2.5"}, WRONG),
        ({"max_in_flight": 0}, "max_in_flight of the Airflow connection 'mine' must be 1 or more"),
        ({"max_in_flight": "-3"}, "max_in_flight of the Airflow connection 'mine' must be 1 or more"),
        ({"endpoints": "{"}, WRONG),
        ({"allow_http": "perhaps"}, WRONG),
    ],
)
def test_a_missing_or_invalid_field_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    name, given = next(iter(changes)), connection()
    given = {**given, "extra": given["extra"] | changes} if name not in given else given | changes
    with pytest.raises(ComplianceConfigError, match=message.format(name)):
        settings(monkeypatch, given)


def test_unknown_extras_are_named_in_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "airflow_provider.hooks.connection"):
        settings(monkeypatch, connection(extra={"client_key": "hidden-value"}))
    assert "client_key" in caplog.text
    assert "hidden-value" not in caplog.text
