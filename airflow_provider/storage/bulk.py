"""Many texts on their way into a store, and those that are there already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import ComplianceStorageDeniedError
from airflow_provider.storage.locations import Location
from airflow_provider.storage.texts import Written, store_text

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

EMPTY_GZIP = 20  # bytes of a gzip file with nothing in it

Overwrite = Literal["replace", "skip", "fail"]


async def store_texts(
    client: AsyncComplianceClient,
    targets: Mapping[str, Location],
    *,
    overwrite: Overwrite,
    compress: bool,
    concurrency: int,
    log: Any,
) -> dict[str, Written]:
    """Write the texts of completed jobs, so many at a time; an object that is left as it is has no hash.

    :param targets: where each text goes, by uuid
    :param overwrite: what to do where there is an object already
    :param log: the task's log
    """
    there = {} if overwrite == "replace" else await _existing(targets, concurrency)
    if there and overwrite == "fail":
        first = targets[next(iter(there))]
        more = f", and {len(there) - 1} more," if len(there) > 1 else ""
        raise ComplianceStorageDeniedError(
            f"'{first}'{more} exists already, so nothing was written. Remove it, or choose "
            "overwrite='replace' or 'skip'."
        )

    async def store(uuid: str) -> Written:
        target = targets[uuid]
        written = await store_text(client, uuid, target, compress=compress)
        if written.bytes <= (EMPTY_GZIP if compress else 0):
            log.warning("Job %s is completed, but its text is empty: '%s' is too.", uuid, target)
        else:
            log.debug("The text of job %s is at '%s': %s bytes.", uuid, target, written.bytes)
        return written

    results = await for_each(store, [uuid for uuid in targets if uuid not in there], concurrency)
    for uuid, size in there.items():
        log.info("'%s' is there already, with %s bytes: not written.", targets[uuid], size)
        results[uuid] = Written(size, None)
    return results


async def _existing(targets: Mapping[str, Location], concurrency: int) -> dict[str, int]:
    """Find the objects that are there already, with their sizes."""

    async def look(uuid: str) -> int | None:
        return await in_thread(targets[uuid].size)

    next(iter(targets.values())).fs.invalidate_cache()  # others may have written meanwhile
    found = await for_each(look, list(targets), concurrency)
    return {uuid: size for uuid, size in found.items() if size is not None}
