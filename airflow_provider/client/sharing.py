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

from airflow_provider.client.endpoints import BatchLimit
from airflow_provider.client.exchange import ThrottlePause
from airflow_provider.client.settings import Settings
from airflow_provider.client.tokens import AccessToken, TokenCache
from airflow_provider.client.wire import Call
from airflow_provider.exceptions import ComplianceError


@dataclass(frozen=True, eq=False, slots=True)
class PendingRefresh:
    """One renewal of the token: who `leads` carries it out in its `thread`, all others wait for `landed`."""

    future: Future[AccessToken | None]
    is_leader: bool
    thread: int = field(default_factory=threading.get_ident)


class TokenProvider:
    """Hands out the access token of one login; whoever has to renew it does so alone."""

    def __init__(self, cache: TokenCache) -> None:
        self.cache = cache
        self._lock = threading.Lock()
        self._pending: PendingRefresh | None = None

    def acquire(self, refused: AccessToken | None) -> AccessToken | PendingRefresh:
        """Return the token; or a renewal, which the caller has to lead or to wait for.

        :param refused: the token that the service has just refused
        """
        with self._lock:
            if self._pending:
                return replace(self._pending, is_leader=False)
            if token := self.cache.get_usable(refused):
                return token
            self._pending = PendingRefresh(Future(), is_leader=True)
            # A running future can't be cancelled by one of those who wait for it.
            self._pending.future.set_running_or_notify_cancel()
            return self._pending

    @contextmanager
    def refreshing(self, pending: PendingRefresh) -> Iterator[None]:
        """Renew inside of this block: its end, good or bad, is the end for all who wait."""
        try:
            yield
        except ComplianceError as error:
            self._resolve(pending, copy.copy(error))
            raise
        except BaseException:
            self.abandon(pending)
            raise
        self._resolve(pending, self.cache.latest)

    def abandon(self, pending: PendingRefresh) -> None:
        """End a renewal without a result, so that one of those who wait leads the next."""
        self._resolve(pending, None)

    def _resolve(self, pending: PendingRefresh, result: AccessToken | ComplianceError | None) -> None:
        with self._lock:
            if self._pending and self._pending.future is pending.future:
                self._pending = None
            if pending.future.done():
                return
            if isinstance(result, ComplianceError):
                pending.future.set_exception(result)
            else:
                pending.future.set_result(result)


class SharedState:
    """What all clients with equal settings share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tokens = TokenProvider(TokenCache(settings))
        # Longer than any renewal takes: after that its leader is taken for dead.
        self.refresh_timeout = 2 * (
            settings.retry_seconds + 2 * settings.timeout + 2 * settings.response_timeout
        )
        self.batch = BatchLimit(settings.batch_size)
        self._service_pause, self._token_pause = ThrottlePause(), ThrottlePause()
        # An authorized call has been answered well in this process: what fails now may pass.
        self.has_worked = False
        bind_to_process(self)

    def after_fork(self) -> None:
        """Begin anew: a refresh token that two processes use is refused to one of them."""
        SharedState.__init__(self, self.settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return get_shared_state, (self.settings,)  # in another process, what is shared there

    @property
    def is_logged_in(self) -> bool:
        """The identity provider has taken these credentials, and has not refused them since."""
        return self.tokens.cache.latest is not None

    @property
    def throttlings(self) -> int:
        """How often the service has asked to send less."""
        return self._service_pause.count

    def throttle_pause(self, call: Call[Any]) -> ThrottlePause:
        """Return the pause of the server that the call goes to."""
        return self._service_pause if call.authorized else self._token_pause


_registry: dict[Settings, SharedState] = {}
_registry_lock = threading.Lock()


def get_shared_state(settings: Settings) -> SharedState:
    """Return what the clients with these settings share in this process."""
    with _registry_lock:
        if settings not in _registry:
            _registry[settings] = SharedState(settings)
        return _registry[settings]


def reset_shared_state() -> None:
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
