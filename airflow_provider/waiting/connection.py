"""The connection of a poller to the service, which follows the Airflow connection when that is edited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airflow_provider.exceptions import ComplianceError, ComplianceJobError

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.base import ServiceClock
    from airflow_provider.hooks.compliance import ComplianceHook

READ_SECONDS = 30.0  # to read an Airflow connection: a secrets backend may hang


class PollerConnection:
    """An open client of the Airflow connection of a hook.

    :param account: the account of the jobs; empty if unknown
    """

    def __init__(self, hook: ComplianceHook, account: str = "") -> None:
        self._hook = hook
        self._account = account
        self._client: AsyncComplianceClient | None = None
        self._has_worked = False
        self.has_moved = False  # to another service or account, which does not have the jobs of the first one

    @property
    def moved_error(self) -> ComplianceError:
        """What ends the wait for a job that another service may confuse with one of its own."""
        return ComplianceJobError(
            f"The connection '{self._hook.conn_id}' leads to another service or account now than when the "
            "job was submitted. A retry of the submit submits there."
        )

    @property
    def clock(self) -> ServiceClock | None:
        """The clock of the service; None before the client is open."""
        return self._client.clock if self._client else None

    @property
    def has_worked(self) -> bool:
        """The credentials worked before in this process."""
        if self._client is not None:
            self._has_worked = self._has_worked or self._client.has_worked or self._client.is_logged_in
        return self._has_worked

    async def open(self) -> AsyncComplianceClient:
        """Return the client; open it before its first use."""
        if self._client is None:
            client = await _make_client(self._hook)
            self._client = await client.__aenter__()
            self._check_account()
        return self._client

    def _check_account(self) -> None:
        if self._client is not None:
            found = self._client.settings.account_digest
            self._account = self._account or found
            self.has_moved |= found != self._account

    async def reload(self) -> bool:
        """Read the Airflow connection again, use it if it changed, and return whether it has."""
        hook = type(self._hook)(self._hook.conn_id)
        try:
            client = await _make_client(hook)
            if self._client is not None and client.settings == self._client.settings:
                return False
            client = await client.__aenter__()
        except ComplianceError:  # not usable now: what matters is the error of the poll
            return False
        await self.close()
        self._hook, self._client = hook, client
        self._check_account()
        return True

    async def close(self) -> None:
        """Close the client, if it is open."""
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)


async def read_account(hook: ComplianceHook) -> str:
    """Return the identity of a hook's connection; empty if it can't be read now."""
    try:
        return (await _make_client(hook)).settings.account_digest
    except ComplianceError:
        return ""


async def _make_client(hook: ComplianceHook) -> AsyncComplianceClient:
    try:
        async with asyncio.timeout(READ_SECONDS):
            # The poller retries itself, so each call may give up soon.
            return await hook.get_async_conn(max_retries=1, retry_seconds=30.0)
    except ComplianceError:
        raise
    except Exception as error:  # from Airflow, or a secrets backend
        why = f"{type(error).__name__}: {error}"
        raise ComplianceError(f"The Airflow connection '{hook.conn_id}' can't be read: {why}") from error
