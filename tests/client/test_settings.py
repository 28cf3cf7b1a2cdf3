"""Settings are checked before anything is sent, and the message says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider.client.settings import Endpoints, Settings
from airflow_provider.exceptions import ComplianceConfigError
from tests.support.values import settings_for


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"base_url": ""},
            r"host \(the base URL\) of the Airflow connection 'compliance_default' is missing",
        ),
        ({"base_url": "api.example.com"}, "must be a URL"),
        ({"base_url": "ftp://api.example.com"}, "must be a URL"),
        ({"base_url": "https://"}, "must be a URL"),
        ({"base_url": "https://a b"}, "spaces or control characters"),
        ({"base_url": "https://a\nb"}, "spaces or control characters"),
        ({"base_url": "https://api.example.com:99999"}, "not a valid URL"),
        ({"base_url": "https://[::1"}, "not a valid URL"),
        ({"base_url": f"https://{'a' * 70}.com"}, "not a valid URL"),
        ({"base_url": "https://u:p@api.example.com"}, "must not contain credentials"),
        ({"base_url": "https://u@api.example.com"}, "must not contain credentials"),
        ({"base_url": "https://:p@api.example.com"}, "must not contain credentials"),
        ({"base_url": "https://api.example.com?x=1"}, "must not have a query"),
        ({"base_url": "http://api.example.com"}, "'api.example.com' unencrypted.*'allow_http'"),
        ({"token_url": ""}, "token_url of .* is missing"),
        ({"token_url": "http://id.example.com/token"}, "'id.example.com' unencrypted"),
        ({"token_url": "https://id.example.com/token#x"}, "fragment"),
        ({"username": ""}, "login of .* is missing"),
        ({"password": SecretStr("")}, "password of .* is missing"),
        ({"client_id": ""}, "client_id of .* is missing"),
        ({"client_secret": SecretStr("")}, "client_secret of .* is missing"),
        ({"grant_type": "implicit"}, "grant_type of .* must be password or client_credentials"),
        (
            {"grant_type": "client_credentials", "client_secret": SecretStr("")},
            "client_secret of .* is missing",
        ),
        ({"idp_subject": "a\r\nb"}, "idp_subject"),
        ({"idp_subject": "ä"}, "idp_subject"),
        ({"idp_subject": " alice"}, "idp_subject"),
        ({"console_url": "console.example.com"}, "console_url .* must be a URL"),
        ({"assessment_console_url": "example.com"}, "assessment_console_url .* must be a URL"),
        ({"assessment_console_url": "https://example.com/ x"}, "assessment_console_url .* spaces"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": 86_401}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"retry_seconds": float("nan")}, "retry_seconds"),
        ({"retry_seconds": -1}, "retry_seconds"),
        ({"retry_seconds": float("inf")}, "retry_seconds"),
        ({"backoff": -1}, "backoff"),
        ({"backoff": float("nan")}, "backoff"),
        ({"console_url": "https://example.com/\nx{uuid}"}, "console_url .* control characters"),
        ({"console_url": "https://example.com/ {uuid}"}, "console_url .* spaces"),
        ({"console_url": "https://example.com/\u202e{uuid}"}, "console_url .* control characters"),
        ({"max_retries": -1}, "max_retries"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_in_flight": 0}, "max_in_flight"),
    ],
)
def test_a_wrong_setting_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ComplianceConfigError, match=message):
        settings_for("https://api.example.com", **changes)


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.8.9.1/x", "http://[::1]:5", "http://a.localhost"]
)
def test_http_is_fine_on_this_machine(url: str) -> None:
    assert settings_for(url).base_url == url


@pytest.mark.parametrize(
    ("url", "base_url"),
    [
        ("https://API.Example.com:443/", "https://api.example.com"),
        ("https://api.example.com:8443/a/", "https://api.example.com:8443/a"),
        ("HTTPS://api.example.com/A/../b%7e", "https://api.example.com/b~"),
        (
            "https://b\u00fccher.example/\u00fc b".replace(" ", "%20"),
            "https://xn--bcher-kva.example/%C3%BC%20b",
        ),
        ("https://[::1]:443/%zz", "https://[::1]/%25zz"),
        ("https://my_service//a/./b", "https://my_service//a/./b"),
    ],
)
def test_a_url_has_one_spelling(url: str, base_url: str) -> None:
    one, other = settings_for(url), settings_for(base_url)
    assert one.base_url == other.base_url == base_url
    assert one.account_digest == other.account_digest


def test_http_is_fine_where_it_is_allowed() -> None:
    assert settings_for("http://api.example.com", allow_http=True).base_url == "http://api.example.com"


@pytest.mark.parametrize(
    "host",
    [
        *("evillocalhost", "evil-localhost", "localhost.", "localhostx", "127.0.0.1.evil.example"),
        *("example.com", "localhost.example.com", "10.0.0.1", "128.0.0.1", "[::2]"),
    ],
)
def test_a_name_that_only_looks_like_this_machine_is_another_one(host: str) -> None:
    with pytest.raises(ComplianceConfigError, match="unencrypted"):
        settings_for(f"http://{host}")


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "JSON object"),
        ({"assesment_submit": "/x"}, "any of application_info, .*, not with assesment_submit"),
        ({"application_info": "x"}, "is 'x': use a path such as '/api/v1/info'"),
        ({"application_info": 5}, "use a path"),
        ({"application_info": "/a b"}, "use a path"),
        ({"application_info": "/a\n"}, "use a path"),
        ({"assessment_status": "/x/status"}, r"use a path such as '/.*\{assessment_id\}"),
    ],
)
def test_wrong_endpoints_are_named(paths: Any, message: str) -> None:
    with pytest.raises(ComplianceConfigError, match=message):
        Endpoints.parse(paths)


def test_endpoints_can_be_replaced_one_by_one() -> None:
    endpoints = Endpoints.parse({"assessment_cancel": "/v9/{assessment_id}"})
    assert endpoints.assessment_cancel == "/v9/{assessment_id}"
    assert endpoints.assessment_submit == "/api/v1/assessments"


def test_base_url_has_no_slash_at_its_end() -> None:
    for slashes in ("", "/", "//", "///"):
        assert settings_for(f"https://api.example.com/x{slashes}").base_url == "https://api.example.com/x"


def test_account_is_the_user_or_the_client() -> None:
    url = "https://api.example.com"
    assert settings_for(url, username="alice").account == "user 'alice'"
    assert (
        settings_for(url, grant_type="client_credentials", client_id="partner").account == "client 'partner'"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"timeout": 0.1},
        {"timeout": 86_400},
        {"retry_seconds": 0},
        {"backoff": 0},
        {"max_retries": 0},
        {"batch_size": 1},
        {"idp_subject": ""},
        {"idp_subject": "alice"},
        {"console_url": ""},
        {"console_url": "https://console.example.com/jobs/{uuid}"},
        {"assessment_console_url": "http://console.example.com/{assessment_id}"},
        {"token_url": "https://id.example.com/token?realm=x"},
    ],
)
def test_the_least_and_the_most_are_allowed(changes: dict[str, Any]) -> None:
    settings = settings_for("https://api.example.com", **changes)
    assert {name: getattr(settings, name) for name in changes} == changes


def test_unset_settings_have_defaults() -> None:
    settings = Settings(
        "https://a.example", "https://b.example", "alice", SecretStr("p"), "partner", SecretStr("s")
    )
    assert (settings.max_retries, settings.batch_size, settings.name) == (5, 100, "the client's settings")
    assert settings.endpoints.assessment_cancel == "/api/v1/assessments/{assessment_id}"
    assert len(settings.account_digest) == 16


def test_settings_from_different_places_are_equal() -> None:
    assert settings_for("https://a.example.com", name="x") == settings_for("https://a.example.com", name="y")
    assert settings_for("https://a.example.com") != settings_for("https://a.example.com", backoff=9.0)


def test_a_digest_tells_services_and_accounts_apart_but_not_passwords() -> None:
    one = settings_for("https://api.example.com")
    same = settings_for("https://api.example.com/", password=SecretStr("rotated"), timeout=5.0)
    others = [
        settings_for("https://api.example.org"),
        settings_for("https://api.example.com", username="bob"),
        settings_for("https://api.example.com", idp_subject="x"),
        settings_for("https://api.example.com", grant_type="client_credentials"),
    ]
    assert one.account_digest == same.account_digest
    assert len({one.account_digest, *(each.account_digest for each in others)}) == 5
