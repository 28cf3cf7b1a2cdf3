"""Small objects, read as quickly as their store allows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from airflow_provider.storage.locations import Location, one_request, storage_errors

READS_IN_FLIGHT = 32


def read_objects(folder: Location, paths: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
    """Read many small objects of one store, some at a time, in order; None for what is not an object.

    Blocks. Only those of one group are in memory.

    :param folder: what errors name
    """
    fs = folder.fs
    for start in range(0, len(paths), READS_IN_FLIGHT):
        group = paths[start : start + READS_IN_FLIGHT]
        with storage_errors(folder, "read"):
            contents = _read_group(fs, group)
        yield from zip(group, contents, strict=True)


def _read_group(fs: Any, paths: Sequence[str]) -> list[bytes | None]:
    if not fs.async_impl:
        return [_read(fs, path) for path in paths]
    from fsspec.asyn import sync

    async def read_all() -> list[bytes | BaseException]:
        return await asyncio.gather(*(_cat(fs, path) for path in paths), return_exceptions=True)

    # It wakes up now and then: a signal that reaches another thread is handled in this one.
    found: list[bytes | BaseException] = sync(fs.loop, read_all)
    for result in found:
        if isinstance(result, BaseException) and not isinstance(result, FileNotFoundError):
            raise result
    return [None if isinstance(result, BaseException) else result for result in found]


def _read(fs: Any, path: str) -> bytes | None:
    try:
        data: bytes = fs.cat_file(path)
    except (FileNotFoundError, IsADirectoryError):
        return None
    return data


def _cat(fs: Any, path: str) -> Coroutine[Any, Any, bytes]:
    call: Coroutine[Any, Any, bytes] = fs._cat_file(path, **one_request(fs))  # noqa: SLF001 - fsspec's names
    return call
