"""A web site on loopback for jobs that read pages."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class Site:
    """Serves what a test puts in: status, headers and body by path."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.silence = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/silent":
                    site.silence.wait(240)
                    return
                status, headers, body = site.pages.get(self.path, (404, {}, b""))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 named so by its base
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def put(self, path: str, body: bytes | str, content_type: str = "text/html", **headers: str) -> str:
        """Put a page in; return its address."""
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = (200, {"Content-Type": content_type, **headers}, data)
        return self.url + path

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.silence.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
