"""TLS and the environment, for both clients alike."""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import threading
import time
import traceback
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import certifi
import pytest
import trustme

from airflow_provider import exceptions as exc
from airflow_provider.client.http import network
from tests.support.service import Raw, Reply, Service
from tests.support.values import settings_for

FRAMEWORKS = "GET /api/v1/frameworks"
needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="only openssl makes such a folder")


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


def test_a_server_without_tls_is_not_reached(connect: Any, service: Service) -> None:
    run = connect(settings_for(service.url.replace("http://", "https://"), max_retries=1))
    with pytest.raises(exc.ComplianceConnectionError, match=r"could not connect.*\(is it http://") as caught:
        run("list_frameworks")
    assert caught.value.transient


class BreakingServer:
    """Speaks TLS, and breaks it after the handshake or after the request, but for the token."""

    def __init__(self, context: ssl.SSLContext, moment: str) -> None:
        self._context, self._moment = context, moment
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._socket.getsockname()[1]}"
        self.submits = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._socket.accept()
                with plain, suppress(OSError):
                    self._answer(plain)

    def _answer(self, plain: socket.socket) -> None:
        if self._moment == "alert 80" and self.submits == 0:
            self.submits += 1
            plain.recv(65536)
            plain.sendall(bytes([21, 3, 3, 0, 2, 2, 80]))  # an internal error, instead of the handshake
            return
        secure = self._context.wrap_socket(plain, server_side=True)
        request = secure.recv(65536)
        while b"\r\n\r\n" not in request or (b"POST" in request and request.endswith(b"\r\n\r\n")):
            request += secure.recv(65536)
        if b"/token" in request:
            body = b'{"access_token": "a", "expires_in": 300}'
        elif self._moment == "alert 80":
            body = b"[]"
        else:
            self.submits += 1
            raw = socket.socket(fileno=os.dup(secure.fileno()))
            page, record = b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b"\x17\x03\x03\x00\x18" + b"x" * 24
            raw.sendall(page if self._moment == "plain text" else record)
            raw.close()
            secure.detach()
            return
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        secure.sendall(head.encode() + body)
        secure.close()

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("moment", ["plain text", "bad record"])
def test_tls_that_breaks_after_a_submit_was_sent_is_uncertain(
    connect: Any, authority: trustme.CA, ca_path: str, moment: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with closing(BreakingServer(context, moment)) as server:
        run = connect(settings_for(server.url, verify=ca_path))
        with pytest.raises(exc.ComplianceUncertainError):
            run("submit_url", "https://example.com")
        assert server.submits == 1


def test_an_alert_instead_of_a_handshake_is_retried(
    connect: Any, authority: trustme.CA, ca_path: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with closing(BreakingServer(context, "alert 80")) as server:
        assert connect(settings_for(server.url, verify=ca_path))("list_frameworks") == []
        assert server.submits == 1


def test_a_submit_whose_handshake_is_reset_is_not_connected(connect: Any, service: Service) -> None:
    """Nothing was sent, so it is retried."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                plain, _ = listener.accept()
                with plain:
                    accepted.append(plain.recv(65536)[:1])
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    accepted: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=serve, daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        run = connect(settings_for(url, token_url=f"{service.url}/token", max_retries=1))
        with pytest.raises(exc.ComplianceConnectionError, match=r"could not connect \(Connection reset"):
            run("submit_url", "https://example.com")
    assert accepted == [b"\x16"] * 2  # the start of a handshake


@pytest.fixture
def ca_folder(authority: trustme.CA, tmp_path: Path) -> str:
    """A folder as `openssl rehash` makes it."""
    folder = tmp_path / "certs"
    folder.mkdir()
    authority.cert_pem.write_to_path(str(folder / "ours.pem"))
    subprocess.run(["openssl", "rehash", str(folder)], check=True)
    return str(folder)


@needs_openssl
def test_a_folder_of_authorities_is_trusted_where_it_is_named(
    connect: Any, tls_service: Service, ca_folder: str
) -> None:
    assert connect(settings_for(tls_service.url, verify=ca_folder))("list_frameworks") == []


def test_a_ca_file_without_certificates_is_named(connect: Any, service: Service, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing")
    with pytest.raises(exc.ComplianceConfigError, match=r"notes\.txt' has no usable certificates.*'verify'"):
        connect(settings_for(service.url, verify=str(path)))


def test_a_missing_ca_file_is_named(connect: Any, service: Service) -> None:
    with pytest.raises(exc.ComplianceConfigError, match=r"no CA file or directory 'no/such\.pem'.*'verify'"):
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
        ({"https_proxy": "p:1"}, "https://api.example.com", "http://p:1"),
        ({"https_proxy": "user:secret@p:1"}, "https://api.example.com", "http://user:secret@p:1"),
        ({"https_proxy": "//p:1"}, "https://api.example.com", "http://p:1"),
        ({"https_proxy": " http://p:1 "}, "https://api.example.com", "http://p:1"),
        ({"https_proxy": "HTTPS://p:1"}, "https://api.example.com", "HTTPS://p:1"),
        ({"https_proxy": "http://[::1]:1"}, "https://api.example.com", "http://[::1]:1"),
    ],
)
def test_the_proxy_is_the_environment_s(
    environment: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert network.proxy_for(url) == proxy


PROXY = "http://p:1"


@pytest.mark.parametrize(
    ("no_proxy", "url", "proxy"),
    [
        ("localhost, 10.0.0.0/8", "https://10.1.2.3:8443", None),
        ("10.0.0.0/8", "http://11.1.2.3", PROXY),
        ("10.1.2.3", "http://10.1.2.3:8080", None),
        ("10.1.2.3", "http://10.1.2.33", PROXY),
        ("10.0.0.0/99, not/8, /", "http://10.1.2.3", PROXY),
        ("::1", "http://[::1]:8080", None),
        ("api.example.com:8443", "https://api.example.com:8443", None),
        ("api.example.com:8443", "https://api.example.com", PROXY),
        ("example.com", "https://api.example.com", None),
        ("EXAMPLE.com", "https://Api.example.COM", None),
        ("", "http://10.1.2.3", PROXY),
    ],
)
def test_hosts_without_a_proxy_are_the_environment_s(
    no_proxy: str, url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", PROXY)
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert network.proxy_for(url) == proxy


@pytest.fixture
def proxy(service: Service) -> Service:
    """The service as a proxy: what is for another host comes to it with the whole address."""
    service.on("GET /api/v1/frameworks", Reply(json=[]))
    return service


BEHIND = "http://10.9.8.7"


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_proxy_is_used_with_or_without_a_scheme(
    connect: Any, proxy: Service, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = proxy.url.removeprefix("http://")
    monkeypatch.setenv("HTTP_PROXY", f"{scheme}us%40er:s3cr3t%2F@{address}")
    assert connect(settings_for(BEHIND, allow_http=True))("list_frameworks") == []
    credentials = "Basic " + b64encode(b"us@er:s3cr3t/").decode()
    assert {r.path for r in proxy.received} == {f"{BEHIND}/token", f"{BEHIND}/api/v1/frameworks"}
    assert {r.headers.get("proxy-authorization") for r in proxy.received} == {credentials}


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ALL_PROXY", "socks5h://user:s3cr3t@127.0.0.1:9", r"ALL_PROXY.*SOCKS.*HTTP_PROXY.*NO_PROXY"),
        ("HTTP_PROXY", "socks4://user:s3cr3t@127.0.0.1:9", r"HTTP_PROXY.*SOCKS"),
        ("HTTP_PROXY", "ftp://user:s3cr3t@127.0.0.1:9", r"HTTP_PROXY.*http://host:port"),
        ("HTTP_PROXY", "http://user:s3cr3t@127.0.0.1:port", r"HTTP_PROXY.*http://host:port"),
        ("HTTP_PROXY", "http://user:s3cr3t@127.0.0.1:99999", r"HTTP_PROXY.*http://host:port"),
        ("HTTP_PROXY", "http://user:s3cr3t@", r"HTTP_PROXY.*http://host:port"),
        ("HTTP_PROXY", "http://user:s3cr3t@[::1", r"HTTP_PROXY.*http://host:port"),
        ("HTTP_PROXY", "http://user:s3cr3t@a b:9", r"HTTP_PROXY.*http://host:port"),
    ],
)
def test_a_proxy_that_can_t_be_used_is_named_without_its_password(
    connect: Any, variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    run = connect(settings_for(BEHIND, allow_http=True))
    with pytest.raises(exc.ComplianceConfigError, match=message) as caught:
        run("list_frameworks")
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("answer", [Reply(407), Raw(reset=True), None])
def test_no_error_shows_the_password_of_a_proxy(
    connect: Any, service: Service, scheme: str, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = service.url.removeprefix("http://") if answer else "127.0.0.1:9"
    for method in ("POST", "CONNECT"):
        service.on(f"{method} {BEHIND}/token", answer)
    monkeypatch.setenv("ALL_PROXY", f"http://user:s3cr3t@{address}")
    url = BEHIND.replace("http", scheme)
    run = connect(settings_for(url, allow_http=True, max_retries=0))
    with pytest.raises(exc.ComplianceError) as caught:
        run("list_frameworks")
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


def test_unrequested_response_is_not_taken_for_the_next_one(connect: Any, service: Service) -> None:
    """A broken proxy may answer a request twice."""
    second_is_sent = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline().decode():
                while self.rfile.readline().strip():
                    pass
                uuid = line.split("/")[4]
                text = f"text of {uuid}"
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}"
                answer = f"{head}\r\n\r\n{text}"
                self.wfile.write(answer.encode())
                if uuid == "j1":
                    time.sleep(0.05)  # else it would come with the first one
                    with suppress(OSError):
                        self.wfile.write(answer.encode())
                    second_is_sent.set()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run = connect(
            settings_for(f"http://127.0.0.1:{server.server_address[1]}", token_url=f"{service.url}/token")
        )
        assert run("get_content", "j1") == "text of j1"
        assert second_is_sent.wait(240)
        assert run("get_content", "j2") == "text of j2"
        server.shutdown()
