"""The emulator: a server in its own thread, with its controls."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aiohttp import web

from airflow_provider.emulator.controls import Controls
from airflow_provider.emulator.http import make_app
from airflow_provider.emulator.settings import Settings, build_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

HOST = "127.0.0.1"
START_TIMEOUT_SECONDS = 60.0
DRAIN_LOOP_TURNS = 10  # more than a new connection needs
R = TypeVar("R")


class Emulator(Controls):
    """A stand-in for the service, on a free port of 127.0.0.1 by default.

    Use it as a context manager, or call `start` and `stop`. After a stop it can be started again, on the
    same port and with the same state, like a service after an outage.

    :param port: 0 for a free port
    :param settings: see `airflow_provider.emulator.settings.Settings`
    """

    def __init__(self, *, port: int = 0, **settings: Any) -> None:
        super().__init__(build_settings(Settings(), settings))
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
                self._state.identity.issuer = f"{self._state.base_url}/realms/partners"
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
