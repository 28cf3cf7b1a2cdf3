"""What stands around the identity provider: a proxy that writes down its token requests, and a service."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TIMEOUT_SECONDS = 240.0  # seconds; only a test that has gone wrong waits that long


@dataclass(frozen=True)
class Grant:
    """One request that reached the token endpoint, and what came of it."""

    form: Mapping[str, str]
    status: int
    answer: Mapping[str, Any]

    @property
    def outcome(self) -> tuple[str, int]:
        return self.form["grant_type"], self.status


@dataclass
class TokenProxy:
    """Passes token requests on to the identity provider as they are, and writes them down.

    :param upstream: the identity provider's token endpoint
    :param grants: the requests so far, in the order of their answers
    :param slowness: seconds to wait before a request is passed on
    :param may_answer: while not set, answers of the identity provider are held back
    :param answers_to_lose: how many answers are thrown away, after the identity provider has given them
    """

    upstream: str
    grants: list[Grant] = field(default_factory=list)
    slowness: float = 0.0
    may_answer: threading.Event = field(default_factory=threading.Event)
    answers_to_lose: int = 0
    url: str = ""

    def __post_init__(self) -> None:
        self.may_answer.set()

    @property
    def outcomes(self) -> list[tuple[str, int]]:
        return [grant.outcome for grant in self.grants]

    @property
    def secrets(self) -> set[str]:
        """All tokens that were ever given out."""
        return {grant.answer[kind] for grant in self.grants for kind in _TOKENS if kind in grant.answer}

    def post(self, body: bytes, authorization: str | None = None) -> tuple[int, str, bytes]:
        """Send a form to the identity provider itself; return status, content type and body."""
        target = urlsplit(self.upstream)
        connection = http.client.HTTPConnection(target.netloc, timeout=TIMEOUT_SECONDS)
        try:
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            if authorization:
                headers["Authorization"] = authorization
            connection.request("POST", target.path, body, headers)
            response = connection.getresponse()
            return response.status, response.headers.get("Content-Type", ""), response.read()
        finally:
            connection.close()

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        time.sleep(self.slowness)
        status, kind, answer = self.post(body, handler.headers.get("Authorization"))
        form = dict(parse_qsl(body.decode(), strict_parsing=True))
        self.grants.append(Grant(form, status, json.loads(answer) if kind == "application/json" else {}))
        self.may_answer.wait(TIMEOUT_SECONDS)
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            return
        _answer(handler, status, answer, kind)


@dataclass
class FrameworkService:
    """The one call of the service that the tests make; it writes down the tokens that come.

    :param authorizations: the Authorization headers so far
    :param accepts: answer calls with 200, those to refuse apart; otherwise with 401
    """

    authorizations: list[str] = field(default_factory=list)
    accepts: bool = True
    url: str = ""
    _to_refuse: int = 0
    _refused_together: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refuse(self, calls: int) -> None:
        """Answer that many calls with 401, all at once when the last of them has come."""
        self._to_refuse, self._refused_together = calls, threading.Barrier(calls)

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.authorizations.append(handler.headers.get("Authorization", ""))
            if is_refused := self._to_refuse > 0:
                self._to_refuse -= 1
        if handler.path != "/api/v1/frameworks":
            _answer(handler, 404)
        elif is_refused:
            self._refused_together.wait(TIMEOUT_SECONDS)
            _answer(handler, 401)
        elif not self.accepts:
            _answer(handler, 401)
        else:
            _answer(handler, 200, b"[]", "application/json")


_TOKENS = ("access_token", "refresh_token", "id_token")


def _answer(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", kind: str = "") -> None:
    handler.send_response(status)
    if kind:
        handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    with suppress(ConnectionError):  # the client may be gone
        handler.end_headers()
        handler.wfile.write(body)


@contextmanager
def running(server: TokenProxy | FrameworkService) -> Iterator[None]:
    """Listen on loopback; `server.url` says where."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.handle(self)

        def do_POST(self) -> None:
            server.handle(self)

        def log_message(self, *args: object) -> None:
            pass

    class Listener(ThreadingHTTPServer):
        # Each test waits for its last answer, so a thread that lives on is a fault to see.
        daemon_threads = False
        request_queue_size = 64

    with Listener(("127.0.0.1", 0), Handler) as listener:
        server.url = f"http://127.0.0.1:{listener.server_port}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown()
            thread.join()
