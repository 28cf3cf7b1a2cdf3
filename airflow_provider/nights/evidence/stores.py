"""Stores other than folders of this machine, as the verifier reads them."""

from __future__ import annotations

import inspect
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any

from airflow_provider.exceptions import ComplianceStorageDeniedError, ComplianceStorageError
from airflow_provider.nights.evidence.verifier import MISSING, UNREADABLE, Folder, Problem
from airflow_provider.storage.locations import Location, error_text, storage_errors

GROUP = 1024  # objects that are read in parallel
RETRY_SECONDS = (1.0, 4.0)  # after an outage; the libraries of most stores retried before


class RemoteStore:
    """A store that is not a folder of this machine, as the verifier reads it.

    :param threads: how many objects are read at the same time
    """

    def __init__(self, location: Location, threads: int) -> None:
        self._location = location
        self._threads = threads
        self.address = location.address
        read = getattr(location.fs, "_get_file", None)  # fsspec's naming of coroutines
        is_concurrent = read and "max_concurrency" in inspect.signature(read).parameters
        self._options = {"max_concurrency": 1} if is_concurrent else {}  # else in memory

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        return list(self._retry(lambda: (self._location / folder).list_names()))

    def open(self, path: str, buffering: int = -1) -> Any:
        """Open an object, by way of the disk: one request for all of it."""
        location = self._location / path

        def fetch() -> Any:
            copy = tempfile.NamedTemporaryFile(buffering=buffering, prefix="verify-")  # noqa: SIM115 the caller closes it
            try:
                location.fs.get_file(location.path, copy.name, **self._options)
            except Exception as error:
                with suppress(FileNotFoundError):  # some libraries remove a file that they could not fill
                    copy.close()
                if isinstance(error, FileNotFoundError):
                    raise Problem(MISSING, f"{location} does not exist") from None
                if isinstance(error, IsADirectoryError | ValueError):
                    raise Problem(MISSING, f"{location} is not an object: {error_text(error)}") from None
                with storage_errors(location, "read"):
                    raise
            return copy

        try:
            return self._retry(fetch)
        except ComplianceStorageDeniedError as error:
            raise Problem(UNREADABLE, str(error)) from None

    def show(self, path: str) -> str:
        """Return where an object is."""
        return str(self._location / path)

    def each(self, call: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Call a function for each item, some at a time; yield the results in order."""
        remaining = iter(items)
        with ThreadPoolExecutor(self._threads) as pool:
            while group := list(islice(remaining, GROUP)):
                yield from pool.map(call, group)

    def _retry(self, call: Callable[[], Any]) -> Any:
        """Call again after an outage of the store; problems of an object itself stay."""
        for seconds in (*RETRY_SECONDS, None):
            try:
                return call()
            except ComplianceStorageDeniedError:
                raise
            except ComplianceStorageError as error:
                if seconds is None:
                    raise OSError(str(error)) from None
                time.sleep(seconds)
        return None


def open_store(location: Location, threads: int) -> Folder | RemoteStore:
    """Return a store as the verifier reads it."""
    return Folder(location.path) if location.is_local else RemoteStore(location, threads)
