"""What stores say about many objects: listed, where one request for each would take too long."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import ComplianceError
from airflow_provider.storage.locations import Location

RUN_OBJECTS = 1000  # as many as S3 lists in one page
MIN_FOUND = 32  # objects of ours in a page: where there are fewer, single requests are cheaper
LISTS_IN_FLIGHT = 8

Info = Mapping[str, Any]
_Store = tuple[str, str | None]


async def find_infos(uris: Iterable[str], seconds: float) -> dict[str, Info]:
    """Return size and version of objects, as far as their stores tell that quickly.

    S3 lists pages of them, and files are looked at many at a time. An object that is not in the result may
    exist all the same: ask for it by itself. Nothing is cached, and no error is raised.

    :param seconds: for one answer of a store
    """
    found: dict[str, Info] = {}
    runs = await in_thread(_make_runs, set(uris))

    async def look(number: int) -> None:
        fs, locations = runs[number]
        try:
            if hasattr(fs, "call_s3"):
                await _list_run(fs, locations, found, seconds)
            elif not fs.async_impl:
                async with asyncio.timeout(seconds):
                    # Not `in_thread`: a store that hangs is abandoned.
                    found.update(await asyncio.to_thread(_look_at, fs, locations))
        except Exception:  # noqa: S110 - a request for each object says what is wrong
            pass

    await for_each(look, range(len(runs)), LISTS_IN_FLIGHT)
    return found


def _make_runs(uris: set[str]) -> list[tuple[Any, list[Location]]]:
    """Return objects that are neighbors in their stores; those of one run are in one folder."""
    stores: dict[_Store, Any] = {}
    folders: dict[tuple[_Store, str], list[Location]] = {}
    for uri in uris:
        try:
            location = Location(uri)
            store = location.protocol, location.conn_id
            if store not in stores:
                stores[store] = location.fs
        except ComplianceError:
            continue
        folders.setdefault((store, location.path.rpartition("/")[0]), []).append(location)
    for locations in folders.values():
        locations.sort(key=lambda location: location.path)
    return [
        (stores[store], locations[start : start + RUN_OBJECTS])
        for (store, _), locations in folders.items()
        for start in range(0, len(locations), RUN_OBJECTS)
    ]


def _look_at(fs: Any, locations: Sequence[Location]) -> dict[str, Info]:
    found = {}
    for location in locations:
        try:
            found[location.uri] = fs.info(location.path)
        except Exception:  # noqa: S112 - see `find_infos`
            continue
    return found


async def _list_run(fs: Any, locations: Sequence[Location], found: dict[str, Info], seconds: float) -> None:
    """List the part of a folder in S3 that these objects are in, as long as most of it is about them."""
    bucket = locations[0].container
    keys = [location.key for location in locations]
    prefix = keys[0].rpartition("/")[0]
    prefix = f"{prefix}/" if prefix else ""
    start = 0
    while len(keys) - start >= MIN_FOUND:
        async with asyncio.timeout(seconds):
            page = await asyncio.to_thread(
                fs.call_s3,
                "list_objects_v2",
                Bucket=bucket,
                Prefix=prefix,
                Delimiter="/",
                StartAfter=keys[start][:-1],  # so the first of them is listed, too
            )
        listed = {entry["Key"]: entry for entry in page.get("Contents", ())}
        last = max([*listed, *(folder["Prefix"] for folder in page.get("CommonPrefixes", ()))], default="")
        end = bisect_right(keys, last) if page.get("IsTruncated") else len(keys)
        for location in locations[start:end]:
            if entry := listed.get(location.key):
                # In quotes, as in the response about one object; rclone lists it without.
                etag = str(entry.get("ETag") or "").strip('"')
                version = {"ETag": f'"{etag}"'} if etag else {}
                found[location.uri] = {"type": "file", "size": entry["Size"], **version}
        if end - start < MIN_FOUND:
            return
        start = end
