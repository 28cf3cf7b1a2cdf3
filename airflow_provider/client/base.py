"""The base of both clients, and the state that they share in a process: token, throttle pause, batch limit.

Both threads and event loops use it: hence one lock, and `concurrent.futures.Future`, which both can await.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast
from weakref import WeakSet

from airflow_provider.client.batches import BatchLimit
from airflow_provider.client.exchange import Done, Exchange, ThrottlePause
from airflow_provider.client.http.network import ca_file, proxy_for
from airflow_provider.client.http.uploads import DaemonThread
from airflow_provider.client.http.wire import Call, HttpRequest, HttpResponse, LocalIO, Observer, Pause, Step
from airflow_provider.client.responses import Translate
from airflow_provider.client.settings import Settings
from airflow_provider.client.tokens import (
    LOCAL_IO_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    AccessToken,
    TokenCache,
    TokenStore,
    TokenStoreError,
    renew_with_store,
)
from airflow_provider.exceptions import ComplianceError

T = TypeVar("T")
log = logging.getLogger(__name__)
REFRESH_TIMEOUT_SECONDS = 900.0  # after that, the leader of a refresh is presumed dead
PRECISION_SECONDS = 2.0  # for a `Date`, which has whole seconds and was under way
MAX_SKEW_SECONDS = 60.0  # for this machine, before a warning


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request, and return its response or failure."""

    exchange: Exchange[Any]
    request: HttpRequest


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a future is done, at most this long."""

    future: Future[Any]
    seconds: float


Steps: TypeAlias = Generator[Pause | Send | Wait, Any, T]
"""The steps of a client, for any HTTP library: all decisions are made here and in `Exchange`."""


@dataclass(frozen=True, eq=False, slots=True)
class PendingRefresh:
    """A token refresh in flight: the leader runs it in its `thread`, all others wait for `future`."""

    future: Future[AccessToken | None]
    is_leader: bool
    thread: int = field(default_factory=threading.get_ident)


class TokenProvider:
    """Provides the access token of one login, with at most one refresh in flight.

    :param cache: the tokens of this process
    :param store: shares them with other processes
    """

    def __init__(self, cache: TokenCache, store: TokenStore | None = None) -> None:
        self.cache = cache
        self.store = store
        self._lock = threading.Lock()
        self._pending: PendingRefresh | None = None

    def acquire(self, refused: AccessToken | None) -> AccessToken | PendingRefresh:
        """Return the token, or a refresh that the caller has to lead or to wait for.

        :param refused: the token that the service has just refused
        """
        with self._lock:
            if self._pending:
                return replace(self._pending, is_leader=False)
            if token := self.cache.get_usable(refused):
                return token
            self._pending = PendingRefresh(Future(), is_leader=True)
            # A running future can't be cancelled by a waiter.
            self._pending.future.set_running_or_notify_cancel()
            return self._pending

    def renew(
        self, refused: AccessToken | None, *, may_wait: bool = True
    ) -> Generator[Step, Any, AccessToken]:
        """Return the steps of a refresh, which the leader has to run.

        :param may_wait: wait for another process that is renewing the shared token
        """
        if self.store is None:
            return self.cache.renew()
        timeout = LOCK_TIMEOUT_SECONDS if may_wait else 0.0
        return renew_with_store(self.cache, self.store, refused, lock_timeout=timeout)

    @contextmanager
    def refreshing(self, pending: PendingRefresh) -> Iterator[None]:
        """Run the refresh inside this block; all waiters get its result or its error."""
        result: AccessToken | ComplianceError | None = None
        try:
            yield
            result = self.cache.latest
        except ComplianceError as error:
            result = copy.copy(error)
            raise
        finally:
            self._resolve(pending, result)

    def abandon(self, pending: PendingRefresh) -> None:
        """End a refresh without a result, so that one of the waiters leads the next."""
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


class ServiceClock:
    """The time at the service, as the `Date` of its responses tells it.

    Until the first response it is the time of this machine. What other machines wrote, such as when
    they submitted a job, is compared with this time: their clocks may differ by hours.

    :param url: the URL of the service, for the warning
    :ivar is_known: the service told its time
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._date = ""
        self._offset: float | None = None  # from our monotonic clock: the wall clock may jump
        self._is_warned = False

    @property
    def is_known(self) -> bool:
        """Whether the service has told its time."""
        return self._offset is not None

    def now(self) -> float:
        """Return the time, in seconds since the epoch."""
        return time.time() if self._offset is None else time.monotonic() + self._offset

    def observe(self, headers: Mapping[str, str]) -> None:
        """Read the time from the headers of a response; one from a cache, with an age, does not tell it."""
        date = headers.get("date", "")
        if not date or date == self._date or "age" in headers:
            return
        self._date = date
        with suppress(ValueError, TypeError, OverflowError):
            sent = parsedate_to_datetime(date)
            at = sent.replace(tzinfo=sent.tzinfo or UTC).timestamp() + 0.5
            skew = time.time() - at
            self._offset = at + (skew if abs(skew) <= PRECISION_SECONDS else 0.0) - time.monotonic()
            if abs(skew) > MAX_SKEW_SECONDS and not self._is_warned:
                self._is_warned = True
                log.warning(
                    "The clock of this machine is %.0f s %s the clock of %s: set it, for example by NTP. "
                    "Limits of time count by the clock of the service.",
                    abs(skew), "ahead of" if skew > 0 else "behind", self._url,
                )  # fmt: skip


class SharedState:
    """State shared by all clients with equal settings.

    :param settings: the settings of all these clients
    :param store: shares the tokens with other processes
    """

    def __init__(self, settings: Settings, store: TokenStore | None = None) -> None:
        self.settings = settings
        self.tokens = TokenProvider(TokenCache(settings), store)
        self.batch = BatchLimit(settings.batch_size)
        self.service_pause, self.token_pause = ThrottlePause(), ThrottlePause()
        self.clock = ServiceClock(settings.base_url)
        # An authorized call succeeded in this process: the credentials are good, and a 401 is transient.
        self.has_worked = False
        _process_bound.add(self)

    def after_fork(self) -> None:
        """Reset: a rotating refresh token can't be shared by two processes."""
        SharedState.__init__(self, self.settings, self.tokens.store)

    def throttle_pause(self, call: Call[Any]) -> ThrottlePause:
        """Return the throttle pause of the server that the call goes to."""
        return self.service_pause if call.authorized else self.token_pause


_registry: dict[Settings, SharedState] = {}
_registry_lock = threading.Lock()


def get_shared_state(settings: Settings, store: TokenStore | None = None) -> SharedState:
    """Return the state of all clients with these settings in this process.

    :param store: shares the tokens with other processes, if this is the first of these clients
    """
    with _registry_lock:
        if settings not in _registry:
            _registry[settings] = SharedState(settings, store)
        return _registry[settings]


def reset_shared_state() -> None:
    """Drop all shared state; for tests."""
    _registry.clear()


class BaseClient(ABC):
    """The common part of both clients: settings, shared state, the steps of a call, and a session.

    :cvar blocks_thread: a call blocks its thread, and with it an event loop that runs there
    """

    blocks_thread = False

    def __init__(
        self,
        settings: Settings,
        *,
        shared: SharedState | None = None,
        translate: Translate = dict,
        observer: Observer | None = None,
    ) -> None:
        self.settings = settings
        self._shared = shared or get_shared_state(settings)
        self._translate = translate
        self._observer = observer
        self._ca_file = ca_file(settings.verify)
        self._proxy_for = cache(proxy_for)  # scans the whole environment
        self._session = self._new_session()
        _process_bound.add(self)

    @abstractmethod
    def _new_session(self) -> Any: ...

    def after_fork(self) -> None:
        """Replace the session in a forked child: responses mix up on a socket that two processes share."""
        # Keep the inherited one open: closing it could disturb the parent, or block on its locks.
        _left_to_parent.append(self._session)
        self._session = self._new_session()

    def _call(self, call: Call[T]) -> Steps[T]:
        """Return the steps of a call, with retries."""
        shared = self._shared
        exchange = Exchange(
            call, self.settings, shared.throttle_pause(call), shared.has_worked, self._observer
        )
        while True:
            if delay := exchange.delay():
                yield Pause(delay)
            token = (yield from self._token(exchange.refused_token)) if call.authorized else None
            outcome = yield Send(exchange, exchange.next_request(token))
            result = None
            try:
                result = exchange.evaluate(outcome)
            finally:
                if isinstance(outcome, HttpResponse) and not isinstance(result, Done):
                    outcome.close()
            if isinstance(result, Done):
                shared.has_worked |= call.authorized
                if call.authorized and isinstance(outcome, HttpResponse):  # not the error of a gateway
                    shared.clock.observe(outcome.headers)
                return result.value

    def _flow(self, flow: Generator[Step, Any, T]) -> Steps[T]:
        """Return the steps of an operation of several calls."""
        resume: Callable[[Any], Step] = flow.send
        result: Any = None
        with closing(flow):  # even if it is interrupted: it may hold a lock
            while True:
                try:
                    step = resume(result)
                except StopIteration as end:
                    return cast("T", end.value)
                try:
                    resume, result = flow.send, (yield from self._step(step))
                except (ComplianceError, TokenStoreError) as error:
                    resume, result = flow.throw, error

    def _step(self, step: Step) -> Steps[Any]:
        match step:
            case Call():
                return (yield from self._call(step))
            case Pause():
                return (yield step)
            case LocalIO(function):
                with closing(DaemonThread()) as thread:
                    future = thread.submit(function)
                try:
                    yield Wait(future, LOCAL_IO_SECONDS)
                except BaseException:  # cancelled: no one sees the lock that the thread acquires
                    future.add_done_callback(_release_lock)
                    raise
                if not future.done():
                    log.warning(
                        "Tokens are not shared: the file system has hung for %.0f s.", LOCAL_IO_SECONDS
                    )
                    raise TokenStoreError
                return future.result()

    def _token(self, refused: AccessToken | None) -> Steps[AccessToken]:
        provider, may_wait = self._shared.tokens, True
        while True:
            acquired = provider.acquire(refused)
            if isinstance(acquired, AccessToken):
                return acquired
            if acquired.is_leader:
                with provider.refreshing(acquired):
                    return (yield from self._flow(provider.renew(refused, may_wait=may_wait)))
            # A leader in an event loop of this very thread can't continue while we block it.
            may_wait = not (self.blocks_thread and acquired.thread == threading.get_ident())
            yield Wait(acquired.future, REFRESH_TIMEOUT_SECONDS if may_wait else 0)
            if not acquired.future.done():
                provider.abandon(acquired)
            elif token := acquired.future.result():
                return token

    def _proxy(self, call: Call[Any]) -> str | None:
        return self._proxy_for(self.settings.base_url if call.authorized else self.settings.token_url)

    @property
    def batch_size(self) -> int:
        """How many jobs go into one batch status request now."""
        return self._shared.batch.size

    @property
    def clock(self) -> ServiceClock:
        """The clock of the service."""
        return self._shared.clock

    @property
    def throttlings(self) -> int:
        """How often the service throttled this process."""
        return self._shared.service_pause.count

    @property
    def has_worked(self) -> bool:
        """Whether an authorized call with these settings succeeded in this process."""
        return self._shared.has_worked

    @property
    def is_logged_in(self) -> bool:
        """Whether the identity provider accepted these credentials, and did not refuse them since."""
        return self._shared.tokens.cache.latest is not None


_process_bound: WeakSet[SharedState | BaseClient] = WeakSet()  # reset in every forked child
_left_to_parent: list[Any] = []


def _after_fork() -> None:
    """Reset in a child: the parent's threads may hold locks or run a refresh."""
    global _registry_lock
    _registry_lock = threading.Lock()
    for owner in list(_process_bound):
        owner.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _release_lock(future: Future[Any]) -> None:
    """Release the result of a thread if it is a lock; an error of the thread no longer matters."""
    if not future.cancelled() and not future.exception() and hasattr(future.result(), "release"):
        future.result().release()
