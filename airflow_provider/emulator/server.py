"""The web application of the emulated service, and the server in its own thread."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import web

from airflow_provider.emulator.service import assessments, content, processing
from airflow_provider.emulator.service.controls import CONTROLS, ROUTES, Controls, control
from airflow_provider.emulator.service.gateway import finish_headers, gateway
from airflow_provider.emulator.service.processing import PROCESSOR, Processor
from airflow_provider.emulator.service.state import STATE, State, issue_token
from airflow_provider.emulator.settings import LOGIN, OPERATIONS, TOKEN_PATH, Settings

HOST = "127.0.0.1"
START_TIMEOUT_SECONDS = 60.0
DRAIN_LOOP_TURNS = 10  # more than a new connection needs
MAX_BODY_BYTES = 64 * 2**20  # except uploads, which are streamed and have their own limit
PAGE = "<!DOCTYPE html><title>Compliance emulator</title><p>A stand-in for the compliance service."
R = TypeVar("R")


def make_app(state: State, controls: Controls) -> web.Application:
    """Build the application: the service, and the controls under `/_emulator/`."""
    app = web.Application(middlewares=[gateway], client_max_size=MAX_BODY_BYTES)
    app[STATE], app[PROCESSOR], app[CONTROLS] = [state], [Processor(state)], [controls]
    for name, (method, _) in OPERATIONS.items():
        module = next(module for module in (content, assessments, processing) if hasattr(module, name))
        app.router.add_route(method, state.settings.get_path(name), getattr(module, name), name=name)
    app.router.add_route("POST", TOKEN_PATH, issue_token, name=LOGIN)
    # Fixed paths first: jobs/fail before jobs/{uuid}.
    routes: list[web.RouteDef] = sorted(ROUTES, key=lambda route: "{" in route.path)
    app.add_routes(routes)
    app.router.add_route("GET", "/", show_page)
    app.cleanup_ctx.append(process_jobs)
    app.on_response_prepare.append(finish_headers)
    return app


async def show_page(request: web.Request) -> web.Response:
    """Return a page to look at, and to submit: it is always there."""
    return web.Response(text=PAGE, content_type="text/html")


async def process_jobs(app: web.Application) -> AsyncIterator[None]:
    """Resume the jobs that a stop interrupted; at the end stop processing and release the state."""
    app[PROCESSOR][0].resume()
    yield
    await app[PROCESSOR].pop().close()
    app[STATE].clear()
    app[CONTROLS].clear()


class Emulator(Controls):
    """A stand-in for the service, on a free port of 127.0.0.1 by default.

    Use it as a context manager, or call `start` and `stop`. After a stop it can be started again, on the
    same port and with the same state, like a service after an outage.

    :param port: 0 for a free port
    :param settings: see `airflow_provider.emulator.settings.Settings`
    """

    def __init__(self, *, port: int = 0, **settings: Any) -> None:
        super().__init__(State(Settings().change(**settings)))
        self.port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server; return when it accepts requests."""
        if self._thread is not None:
            raise RuntimeError("The emulator is already running: stop it first.")
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="compliance-emulator", daemon=True
        )
        self._thread.start()
        try:
            ready.result(START_TIMEOUT_SECONDS)
        except OSError as error:
            self._join()
            reason = os.strerror(error.errno or 0)
            raise OSError(f"The emulator cannot listen on {HOST}:{self.port}: {reason}.") from error
        except BaseException:
            self._join()
            raise
        return self

    def stop(self) -> None:
        """Stop the server; open connections break."""
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._join()

    @property
    def url(self) -> str:
        """The base URL of the service."""
        return self._state.base_url

    @property
    def token_url(self) -> str:
        """The token endpoint of the identity provider."""
        return self._state.base_url + TOKEN_PATH

    @control("GET connection")
    def connection(self) -> dict[str, Any]:
        """Return the Airflow connection to this emulator."""
        settings = self._state.settings
        names = {"token_url": self.token_url, "client_id": settings.client_id}
        dialect = {"endpoints": settings.endpoints, "profile": self._state.dialect.profile}
        return {
            "conn_type": "compliance",
            "host": self.url,
            "login": settings.username,
            "password": settings.password,
            "extra": {
                **names,
                "client_secret": settings.client_secret,
                **{name: value for name, value in dialect.items() if value},
            },
        }

    @property
    def connection_json(self) -> str:
        """The Airflow connection as JSON, for `AIRFLOW_CONN_COMPLIANCE_DEFAULT`."""
        return json.dumps(self.connection())

    def run_on_loop(self, call: Callable[[], R]) -> R:
        """Call on the event loop of the server; directly if it is not running."""
        loop = self._loop
        if loop is None or threading.current_thread() is self._thread:
            return call()
        done: Future[R] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(run)
        return done.result(START_TIMEOUT_SECONDS)

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._thread = self._loop = self._stopping = None

    def _run(self, ready: Future[None]) -> None:
        try:
            asyncio.run(self._serve(ready))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _serve(self, ready: Future[None]) -> None:
        # A stop does not wait for slow responses.
        runner = web.AppRunner(make_app(self._state, self), access_log=None, shutdown_timeout=0.05)
        with socket.create_server((HOST, self.port)) as listener:
            await runner.setup()
            try:
                await web.SockSite(runner, listener, backlog=1024).start()
                self.port = listener.getsockname()[1]
                self._state.base_url = f"http://{HOST}:{self.port}"
                self._stopping = asyncio.Event()
                self._loop = asyncio.get_running_loop()
                ready.set_result(None)
                await self._stopping.wait()
            finally:
                # asyncio would leave a connection that was just accepted hanging:
                # stop accepting, then let pending ones arrive.
                asyncio.get_running_loop().remove_reader(listener)
                for _ in range(DRAIN_LOOP_TURNS):
                    await asyncio.sleep(0)
                await runner.cleanup()
