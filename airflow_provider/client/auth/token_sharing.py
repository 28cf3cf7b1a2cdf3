"""Sharing tokens with other processes: where they are kept, and which process renews them, without I/O."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

from pydantic import SecretStr

from airflow_provider.client.auth.tokens import AccessToken, TokenCache
from airflow_provider.client.http.wire import Call
from airflow_provider.exceptions import ComplianceError

log = logging.getLogger(__name__)

# Longer than a login takes; a process that holds the lock for longer is stopped, or waits for a retry.
LOCK_TIMEOUT_SECONDS = 60.0
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 0.5
# A file system may hang; in a forked child, so may a lock inside OpenSSL. On a busy host it is just slow.
LOCAL_IO_SECONDS = 60.0


class TokenStoreError(Exception):
    """The store can't be used: each process has to log in by itself."""


def local_io_timeout() -> TokenStoreError:
    """Make the error for a `LocalIO` that hangs, with a warning."""
    log.warning("Tokens are not shared: the file system has hung for more than %.0f s.", LOCAL_IO_SECONDS)
    return TokenStoreError()


class TokenLock(Protocol):
    """The right to renew the tokens of a store; it ends with its process."""

    def release(self) -> None:
        """Let another process renew them."""
        ...


class TokenStore(Protocol):
    """Keeps the tokens of one login where other processes find them."""

    def try_lock(self) -> TokenLock | None:
        """Return the lock, or None while another process has it; raise `TokenStoreError` if there is none."""
        ...

    def load(self) -> SecretStr | None:
        """Return the last snapshot that was saved with the same credentials; None if it can't be read."""
        ...

    def save(self, snapshot: SecretStr) -> None:
        """Replace the snapshot; one that can't be written is gone, so that nobody uses an outdated one."""
        ...


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LocalIO:
    """Call a function that reads or writes local files; `TokenStoreError` after `LOCAL_IO_SECONDS`."""

    function: Callable[[], Any]


Step: TypeAlias = Call[Any] | Pause | LocalIO


def renew_shared(
    cache: TokenCache,
    store: TokenStore,
    refused: AccessToken | None,
    *,
    lock_timeout: float = LOCK_TIMEOUT_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    jitter: Callable[[], float] = random.random,
) -> Generator[Step, Any, AccessToken]:
    """Take over what another process has saved, or renew it under the lock.

    :param refused: the token that the service has just refused
    :param lock_timeout: seconds to wait for the lock, before a login without it
    """
    # Spread: with a wrong password, all processes that have waited would lock the account together.
    deadline = clock() + lock_timeout * (1 + jitter())
    pause = MIN_POLL_SECONDS
    while True:
        lock: TokenLock | None = None
        try:
            try:
                lock = yield LocalIO(store.try_lock)
                cache.adopt((yield LocalIO(store.load)))
            except TokenStoreError:
                return (yield from cache.renew(may_refresh=not cache.is_shared))
            if token := cache.get_usable(refused):
                return token
            is_late = lock is None and clock() >= deadline
            if is_late:
                log.warning(
                    "The shared token has been renewed elsewhere for more than %.0f s: logging in without "
                    "waiting any longer.", lock_timeout,
                )  # fmt: skip
            if lock or is_late:
                return (yield from _renew_and_save(cache, store, may_refresh=lock is not None))
        finally:
            if lock:
                lock.release()
        yield Pause(pause * (0.5 + jitter() / 2))
        pause = min(2 * pause, MAX_POLL_SECONDS)


def _renew_and_save(
    cache: TokenCache, store: TokenStore, *, may_refresh: bool
) -> Generator[Step, Any, AccessToken]:
    before = cache.version
    try:
        token = yield from cache.renew(may_refresh=may_refresh)
    except ComplianceError:
        if cache.version != before:  # credentials were refused: nobody else has to try them
            yield from _save(cache, store)
        raise
    yield from _save(cache, store)
    return token


def _save(cache: TokenCache, store: TokenStore) -> Generator[Step, Any, None]:
    with suppress(TokenStoreError):
        yield LocalIO(partial(store.save, cache.snapshot()))
