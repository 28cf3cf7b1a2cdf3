"""A scripted HTTP server on real sockets: each route answers what a test says, down to the byte."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Received:
    """One request as it came over the wire."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


@dataclass(frozen=True)
class Reply:
    """An ordinary answer; `json` wins over `body`."""

    status: int = 200
    json: Any = None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """These bytes, then the connection ends: orderly, or with a reset."""

    data: bytes = b""
    reset: bool = False


@dataclass(frozen=True)
class Drip:
    """This beginning, then one piece after the other, and at last the end: a response that takes its time.

    :param every: seconds before each piece, as `Service.wait` waits
    """

    head: bytes
    piece: bytes = b" "
    every: float = 0.0
    times: int = 40
    end: bytes = b""


class Hang:
    """No answer, until the test is over."""


Action: TypeAlias = Reply | Raw | Drip | Hang | Callable[[Received], Reply | Raw]


class Service:
    """The server; `on` scripts it, `received` tells what came."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.first_request = threading.Event()
        self.over = threading.Event()
        self.wait: Callable[[float], bool] = self.over.wait
        self.tokens_issued = 0
        self.token_life: float | None = 300
        self._script: dict[str, list[Action]] = defaultdict(list)
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length) if length < 10_000_000 else _count(self.rfile, length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                service._answer(self, Received(self.command, self.path, headers, body))

            do_GET = do_POST = do_DELETE = do_PUT = do_HEAD = handle_any  # noqa: N815 - names of the base class

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):
                    super().handle()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.on("POST /token", self._issue_token)

    def on(self, route: str, *actions: Action) -> None:
        """Answer `METHOD path` with these actions in turn; the last one stays."""
        with self._lock:
            self._script[route] = list(actions)

    def requests_to(self, route: str) -> list[Received]:
        return [r for r in self.received if f"{r.method} {r.path}" == route]

    def grants(self) -> list[str]:
        return [r.form["grant_type"] for r in self.requests_to("POST /token")]

    def _issue_token(self, request: Received) -> Reply:
        with self._lock:
            self.tokens_issued += 1
            number = self.tokens_issued
        answer: dict[str, Any] = {
            "access_token": f"access-{number}",
            "refresh_token": f"refresh-{number}",
            "refresh_expires_in": 1800,
            "token_type": "Bearer",
            "not-before-policy": 0,
            "session_state": "s",
            "scope": "profile",
        }
        if self.token_life is not None:
            answer["expires_in"] = self.token_life
        return Reply(json=answer)

    def _answer(self, handler: BaseHTTPRequestHandler, request: Received) -> None:
        with self._lock:
            self.received.append(request)
            self.first_request.set()
            actions = self._script.get(f"{request.method} {urlsplit(request.path).path}", [])
            action = actions.pop(0) if len(actions) > 1 else actions[0] if actions else Reply(404, json={})
        if callable(action):
            action = action(request)
        match action:
            case Reply():
                _send(handler, action)
            case Raw(data, reset):
                handler.wfile.write(data)
                handler.close_connection = True
                if reset:
                    linger = struct.pack("ii", 1, 0)
                    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    handler.connection.close()
            case Drip(head, piece, every, times, end):
                handler.close_connection = True
                handler.wfile.write(head)
                for _ in range(times):
                    if self.wait(every):
                        return
                    handler.wfile.write(piece)
                handler.wfile.write(end)
            case Hang():
                self.over.wait(60)
                handler.close_connection = True

    @contextlib.contextmanager
    def running(self) -> Iterator[Service]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.over.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    body = reply.body if reply.json is None else json.dumps(reply.json).encode()
    handler.send_response(reply.status)
    headers = {"Content-Length": str(len(body)), **reply.headers}
    if reply.json is not None:
        headers.setdefault("Content-Type", "application/json")
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def _count(stream: Any, length: int) -> bytes:
    """Read a body too large to keep, and keep its length."""
    left = length
    while left:
        if not (piece := stream.read(min(left, 1 << 20))):
            raise ConnectionError("The request ends before its end.")
        left -= len(piece)
    return f"{length} bytes".encode()
