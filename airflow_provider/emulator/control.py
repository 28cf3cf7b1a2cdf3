"""What a test can see and change of a running emulator."""

from __future__ import annotations

import functools
import json
from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, urlencode

from airflow_provider.emulator.memory.faults import Fault
from airflow_provider.emulator.memory.state import State
from airflow_provider.emulator.operations import TOKEN_PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider.emulator.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Control")


def on_loop(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Run a method on the event loop of the emulator, so that it never meets a request halfway."""

    @functools.wraps(method)
    def wrapper(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run_on_loop(functools.partial(method, self, *args, **kwargs))

    return wrapper


class Control(ABC):
    """The controls of an emulator; the same in Python and, as JSON, under `/_emulator/`."""

    def __init__(self, settings: Settings) -> None:
        self._state = State(settings)

    @abstractmethod
    def run_on_loop(self, call: Callable[[], R]) -> R:
        """Run something where the requests are served."""

    # -- where it is

    @property
    def url(self) -> str:
        """The base URL of the service."""
        return self._state.base_url + self._state.settings.base_path

    @property
    def token_url(self) -> str:
        """The token endpoint of the identity provider."""
        return self._state.base_url + TOKEN_PATH

    def connection(self) -> dict[str, Any]:
        """Return the Airflow connection that leads to this emulator."""
        settings = self._state.settings
        names = {"token_url": self.token_url, "client_id": settings.client_id}
        paths = {"endpoints": settings.endpoints} if settings.endpoints else {}
        return {
            "conn_type": "compliance",
            "host": self.url,
            "login": settings.username,
            "password": settings.password,
            "extra": {**names, "client_secret": settings.client_secret, **paths},
        }

    @property
    def connection_json(self) -> str:
        """The Airflow connection as JSON, for `AIRFLOW_CONN_COMPLIANCE_DEFAULT`."""
        return json.dumps(self.connection())

    @property
    def connection_uri(self) -> str:
        """The Airflow connection as a URI."""
        it = self.connection()
        login, password, host = (quote(it[name], safe="") for name in ("login", "password", "host"))
        extra = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in it["extra"].items()
        }
        return f"{it['conn_type']}://{login}:{password}@{host}/?{urlencode(extra)}"

    # -- faults

    @on_loop
    def fail(
        self,
        operation: str,
        *,
        status: int | None = None,
        retry_after: float | str | None = None,
        reset: str | None = None,
        delay: float = 0.0,
        stall: float = 0.0,
        drip: float = 0.0,
        html: bool = False,
        body: Any = None,
        content_type: str | None = None,
        location: str | None = None,
        done: bool = False,
        times: int | None = 1,
        skip: int = 0,
    ) -> int:
        """Let the next calls of an operation go wrong; return a number to lift the fault with.

        :param operation: its name, or a pattern such as `get_*`; only calls with a good token count
        :param status: answer with this status instead of carrying the operation out
        :param retry_after: seconds or an HTTP date
        :param reset: reset the connection `before` the operation, `after` it without an answer, or in the
            `middle` of the answer's body
        :param delay: wait so many seconds before anything else
        :param stall: pause so many seconds in the middle of the answer's body
        :param drip: send the answer's body one byte at a time, and pause so many seconds after each
        :param html: answer with an HTML page, as proxies do
        :param body: answer with this text or JSON value
        :param location: put this into the Location header of the answer; with `status=302` it is a redirect
        :param done: carry the operation out before answering with `status`, `html` or `body`
        :param times: so many calls; None is until the fault is lifted
        :param skip: let so many calls pass first
        """
        after = f"{retry_after:g}" if isinstance(retry_after, int | float) else retry_after
        fault = Fault(
            operation=operation,
            status=status,
            retry_after=after,
            reset=reset,
            delay=delay,
            stall=stall,
            drip=drip,
            html=html,
            body=body,
            content_type=content_type,
            location=location,
            done=done,
            remaining=times,
            skip=skip,
        )
        return self._state.faults.add(fault).id

    @on_loop
    def faults(self) -> list[dict[str, Any]]:
        """Return the faults in force."""
        return [fault.describe() for fault in self._state.faults.active]

    @on_loop
    def clear_faults(self, fault_id: int | None = None) -> int:
        """Lift one fault or all of them; return how many that were."""
        return self._state.faults.clear(fault_id)

    # -- counters

    @on_loop
    def count(self, operation: str | None = None, answer: int | str | None = None) -> int:
        """Return how many calls there were: of one operation or all, with one answer or any."""
        return self._state.counters.count(operation, answer)

    @on_loop
    def counters(self) -> dict[str, Any]:
        """Return all counts: per operation and status, logins, refreshes, most requests in flight."""
        return self._state.counters.describe()

    @on_loop
    def requests(self) -> list[dict[str, Any]]:
        """Return the latest requests, oldest first, without their secrets."""
        return list(self._state.counters.requests)

    # -- settings and time

    @on_loop
    def settings(self) -> dict[str, Any]:
        """Return all settings."""
        return asdict(self._state.settings)

    @on_loop
    def configure(self, /, **changes: Any) -> dict[str, Any]:
        """Change settings while the emulator runs, for instance `latency=0.2, concurrency=4`."""
        self._state.settings = self._state.settings.change(**changes)
        return asdict(self._state.settings)

    @on_loop
    def advance(self, seconds: float) -> None:
        """Move the emulator's clock forward: tokens expire, jobs of `seconds:N` come to their end."""
        self._state.clock.advance(seconds)

    @on_loop
    def reset(self) -> None:
        """Go back to how it all was at the start; tokens issued so far are refused."""
        self._state.reset()
