"""What all clients of one connection share in a process: the token, a pause, the batch limit.

Threads and event loops meet here, so one lock and `concurrent.futures.Future`, which both can wait for.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from weakref import WeakSet

from airflow_provider.client.exchange import Pause
from airflow_provider.client.flows import BatchLimit
from airflow_provider.client.settings import Settings
from airflow_provider.client.tokens import AccessToken, TokenCache
from airflow_provider.client.wire import Call
from airflow_provider.exceptions import ComplianceError


@dataclass(frozen=True, eq=False, slots=True)
class Flight:
    """One renewal of the token: who `leads` carries it out in its `thread`, all others wait for `landed`."""

    landed: Future[AccessToken | None]
    leads: bool
    thread: int = field(default_factory=threading.get_ident)


class TokenDesk:
    """Hands out the access token of one login; whoever has to renew it does so alone."""

    def __init__(self, cache: TokenCache) -> None:
        self.cache = cache
        self._lock = threading.Lock()
        self._flight: Flight | None = None

    def ask(self, refused: AccessToken | None) -> AccessToken | Flight:
        """Return the token; or a renewal, which the caller has to lead or to wait for.

        :param refused: the token that the service has just refused
        """
        with self._lock:
            if self._flight:
                return replace(self._flight, leads=False)
            if token := self.cache.usable(refused):
                return token
            self._flight = Flight(Future(), leads=True)
            # A running future can't be cancelled by one of those who wait for it.
            self._flight.landed.set_running_or_notify_cancel()
            return self._flight

    @contextmanager
    def leading(self, flight: Flight) -> Iterator[None]:
        """Renew inside of this block: its end, good or bad, is the end for all who wait."""
        try:
            yield
        except ComplianceError as error:
            self._land(flight, copy.copy(error))
            raise
        except BaseException:
            self.give_up(flight)
            raise
        self._land(flight, self.cache.latest)

    def give_up(self, flight: Flight) -> None:
        """End a renewal without a result, so that one of those who wait leads the next."""
        self._land(flight, None)

    def _land(self, flight: Flight, result: AccessToken | ComplianceError | None) -> None:
        with self._lock:
            if self._flight and self._flight.landed is flight.landed:
                self._flight = None
            if flight.landed.done():
                return
            if isinstance(result, ComplianceError):
                flight.landed.set_exception(result)
            else:
                flight.landed.set_result(result)


class Shared:
    """What all clients with equal settings share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tokens = TokenDesk(TokenCache(settings))
        # Longer than any renewal takes: after that its leader is taken for dead.
        self.patience = 2 * (settings.retry_seconds + 2 * settings.timeout + 2 * settings.answer_seconds)
        self.batch = BatchLimit(settings.batch_size)
        self._service_pause, self._token_pause = Pause(), Pause()
        # An authorized call has been answered well in this process: what fails now may pass.
        self.has_worked = False
        bind_to_process(self)

    def after_fork(self) -> None:
        """Begin anew: a refresh token that two processes use is refused to one of them."""
        Shared.__init__(self, self.settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_by, (self.settings,)  # in another process, what is shared there

    @property
    def is_logged_in(self) -> bool:
        """The identity provider has taken these credentials, and has not refused them since."""
        return self.tokens.cache.latest is not None

    @property
    def throttlings(self) -> int:
        """How often the service has asked to send less."""
        return self._service_pause.count

    def pause_of(self, call: Call[Any]) -> Pause:
        """Return the pause of the server that the call goes to."""
        return self._service_pause if call.authorized else self._token_pause


_registry: dict[Settings, Shared] = {}
_registry_lock = threading.Lock()


def shared_by(settings: Settings) -> Shared:
    """Return what the clients with these settings share in this process."""
    with _registry_lock:
        if settings not in _registry:
            _registry[settings] = Shared(settings)
        return _registry[settings]


def forget_all() -> None:
    """Begin anew, as each test must."""
    _registry.clear()


class ProcessBound(Protocol):
    """What has sockets, locks or tokens, which belong to one process."""

    def after_fork(self) -> None:
        """Begin anew in a forked child."""
        ...


_process_bound: WeakSet[ProcessBound] = WeakSet()
_left_to_parent: list[object] = []


def bind_to_process(owner: ProcessBound) -> None:
    """Have `owner.after_fork` called in every child that is forked while it lives."""
    _process_bound.add(owner)


def leave_to_parent(session: object) -> None:
    """Keep an inherited session: closing it could disturb the parent, or wait for a lock of its threads."""
    _left_to_parent.append(session)


def _after_fork() -> None:
    """Begin anew in a child: a lock may have been held and a renewal under way in the parent's threads."""
    global _registry_lock
    _registry_lock = threading.Lock()
    for owner in list(_process_bound):
        owner.after_fork()


os.register_at_fork(after_in_child=_after_fork)
