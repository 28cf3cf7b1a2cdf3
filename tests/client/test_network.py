"""TLS and the environment, for both clients alike."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest
import trustme

from airflow_provider import exceptions as exc
from airflow_provider.client import network
from tests.support.service import Reply, Service
from tests.support.values import settings_for

FRAMEWORKS = "GET /api/v1/frameworks"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_service(authority: trustme.CA) -> Iterator[Service]:
    service = Service()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    service._server.socket = context.wrap_socket(service._server.socket, server_side=True)
    service.url = service.url.replace("http://", "https://")
    service.on(FRAMEWORKS, Reply(json=[]))
    with service.running():
        yield service


@pytest.fixture
def ca_path(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def test_an_unknown_authority_is_final_and_names_the_extra(connect: Any, tls_service: Service) -> None:
    run = connect(settings_for(tls_service.url))
    with pytest.raises(
        exc.ComplianceTlsError, match=r"TLS failed \(.*certificate.*'verify'.*CA file"
    ) as caught:
        run("list_frameworks")
    assert not caught.value.transient
    assert not tls_service.received


def test_our_own_authority_is_trusted_where_it_is_named(
    connect: Any, tls_service: Service, ca_path: str
) -> None:
    assert connect(settings_for(tls_service.url, verify=ca_path))("list_frameworks") == []


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_the_environment_can_name_the_authority(
    connect: Any, tls_service: Service, ca_path: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, ca_path)
    assert connect(settings_for(tls_service.url))("list_frameworks") == []


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")  # that is what the user asked for
def test_verification_can_be_switched_off(connect: Any, tls_service: Service) -> None:
    assert connect(settings_for(tls_service.url, verify=False))("list_frameworks") == []


def test_a_certificate_for_another_host_is_refused(connect: Any, tls_service: Service, ca_path: str) -> None:
    url = tls_service.url.replace("127.0.0.1", "localhost")
    run = connect(settings_for(url, verify=ca_path))
    with pytest.raises(exc.ComplianceTlsError):
        run("list_frameworks")


def test_a_server_without_tls_is_a_tls_error(connect: Any, service: Service) -> None:
    run = connect(settings_for(service.url.replace("http://", "https://")))
    with pytest.raises(exc.ComplianceTlsError):
        run("list_frameworks")


def test_a_missing_ca_file_is_named(connect: Any, service: Service) -> None:
    with pytest.raises(exc.ComplianceConfigError, match=r"no CA file 'no/such\.pem'.*'verify'"):
        connect(settings_for(service.url, verify="no/such.pem"))


def test_without_more_the_usual_authorities_are_trusted() -> None:
    assert network.ca_file(True) == certifi.where()
    assert network.ca_file(False) is None


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://api.example.com", None),
        ({"https_proxy": "http://p:1"}, "https://api.example.com", "http://p:1"),
        ({"https_proxy": "http://p:1"}, "http://api.example.com", None),
        ({"all_proxy": "http://p:2"}, "http://api.example.com", "http://p:2"),
        ({"https_proxy": "http://p:1", "no_proxy": ".example.com"}, "https://api.example.com:8443", None),
        ({"https_proxy": "http://p:1", "no_proxy": "*"}, "https://api.example.com", None),
    ],
)
def test_the_proxy_is_the_environment_s(
    environment: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert network.proxy_for(url) == proxy
