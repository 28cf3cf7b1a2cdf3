"""Facts about many objects of a store: listed, where one request for each would take too long."""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fsspec.implementations import local

from airflow_provider.exceptions import ComplianceError
from airflow_provider.runtime.event_loop import for_each, in_thread
from airflow_provider.storage.locations import Location

RUN_OBJECTS = 1000  # as many as S3 lists in one page
MIN_OBJECTS = 4  # our objects in a folder, to list its first page
MIN_FOUND = 32  # our objects in a page, to list the next: below that, single requests are cheaper
LISTS_IN_FLIGHT = 8

Info = Mapping[str, Any]


async def find_infos(uris: Iterable[str], seconds: float) -> dict[str, Info]:
    """Return size and version of objects, as far as their stores tell that quickly.

    Object stores list pages of them, and files are looked at many at a time. An object that is not in the
    result may exist all the same: ask for it by itself. Nothing is cached, and no error is raised.

    :param seconds: for a store to tell about up to 1,000 of them
    """
    found: dict[str, Info] = {}
    runs = await in_thread(_make_runs, set(uris))

    async def look(number: int) -> None:
        with suppress(Exception):  # a request for each object names the problem
            async with asyncio.timeout(seconds):
                # Not `in_thread`: a store that hangs is abandoned.
                found.update(await asyncio.to_thread(_look_at, runs[number]))

    await for_each(look, range(len(runs)), LISTS_IN_FLIGHT)
    return found


def _make_runs(uris: set[str]) -> list[list[Location]]:
    """Return objects that are neighbors in their stores; files of one run are in one folder."""
    stores: dict[Any, Any] = {}
    folders: dict[Any, list[Location]] = {}
    for uri in uris:
        with suppress(ComplianceError):
            location = Location(uri)
            store = location.protocol, location.conn_id
            if store in stores:
                location.fs = stores[store]
            stores[store] = location.fs
            folders.setdefault((store, location.path.rpartition("/")[0]), []).append(location)
    runs = []
    for locations in folders.values():
        locations.sort(key=lambda location: location.path)
        runs += [locations[start : start + RUN_OBJECTS] for start in range(0, len(locations), RUN_OBJECTS)]
    return runs


def _look_at(locations: Sequence[Location]) -> dict[str, Info]:
    fs, found = locations[0].fs, dict[str, Info]()
    if locations[0].is_object_store:
        return _list_run(fs, locations)
    for location in () if fs.async_impl else locations:
        with suppress(Exception):
            found[location.uri] = fs.info(location.path)
    return found


def _list_run(fs: Any, locations: Sequence[Location]) -> dict[str, Info]:
    """List the part of a folder that these objects are in, as long as most of it is about them."""
    found: dict[str, Info] = {}
    paths = [location.path for location in locations]
    start, count = 0, MIN_FOUND  # our objects in a page
    # Includes the first object in the list.
    pages = list_pages(fs, paths[0].rpartition("/")[0], start_after=locations[0].key[:-1])
    while count >= MIN_FOUND and len(paths) - start >= MIN_OBJECTS and (page := next(pages, None)):
        listed = {str(info["name"]): info for info in page}
        end = bisect_right(paths, max(listed))
        for location in locations[start:end]:
            if (info := listed.get(location.path)) and info["type"] == "file":
                found[location.uri] = info
        start, count = end, end - start
    return found


def list_folder(fs: Any, folder: str, *, is_flat: bool = False) -> Iterator[dict[str, Any]]:
    """List the objects in a folder, or all below it, with as little in memory as its store allows."""
    if hasattr(fs, "call_s3"):
        for page in list_pages(fs, folder, is_flat=is_flat):
            yield from page
    elif is_flat:
        found = fs.find(folder, detail=True)
        # Not a dict where the prefix is an object itself, on Azure.
        yield from ({"type": "file", **info, "name": path} for path, info in dict(found or {}).items())
    elif isinstance(fs, local.LocalFileSystem):
        with os.scandir(folder) as entries:
            yield from map(fs.info, entries)
    else:
        yield from fs.ls(folder, detail=True)


def list_pages(
    fs: Any, folder: str, *, is_flat: bool = False, start_after: str = ""
) -> Iterator[list[dict[str, Any]]]:
    """List a folder of a store page by page, in order: its objects and folders, or all objects below it.

    :param start_after: the key that comes before; Azure can't skip what does
    """
    if not hasattr(fs, "call_s3"):
        yield from _list_pages_of_others(fs, folder, start_after)
        return
    bucket, _, prefix = folder.partition("/")
    options: dict[str, str] = {} if is_flat else {"Delimiter": "/"}
    options |= {"StartAfter": start_after} if start_after else {}
    while True:
        page = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=f"{prefix}/" if prefix else "", **options)
        found = [
            {"name": f"{bucket}/{one['Prefix']}", "type": "directory"}
            for one in page.get("CommonPrefixes", ())
        ]
        for entry in page.get("Contents", ()):
            # In quotes, as in the response about one object; rclone lists it without.
            etag = str(entry.get("ETag") or "").strip('"')
            info = {"name": f"{bucket}/{entry['Key']}", "type": "file", "size": entry["Size"]}
            if etag:
                info["ETag"] = f'"{etag}"'
            found.append(info)
        yield found
        if not page.get("IsTruncated"):
            return
        options["ContinuationToken"] = page["NextContinuationToken"]


def _list_pages_of_others(fs: Any, folder: str, start: str) -> Iterator[list[dict[str, Any]]]:
    """List the objects in a folder of Google Cloud Storage or Azure, without its folders."""
    from fsspec.asyn import sync  # not to parse a DAG

    bucket, _, prefix = folder.partition("/")
    prefix, token = f"{prefix}/" if prefix else "", ""
    while True:
        if "gs" in fs.protocol:
            more = {"pageToken": token} if token else {}
            options = {"delimiter": "/", "prefix": prefix, "startOffset": start, **more}
            page = fs.call("GET", "b/{}/o", bucket, **options, json_out=True)
            token, found = page.get("nextPageToken", ""), page.get("items", ())
        else:
            found, token = sync(fs.loop, _list_azure, fs, bucket, prefix, token)
        yield [
            {**one, "name": f"{bucket}/{one['name']}", "size": int(one["size"]), "type": "file"}
            for one in found
        ]
        if not token:
            return


async def _list_azure(fs: Any, container: str, prefix: str, token: str) -> tuple[list[dict[str, Any]], str]:
    client = fs.service_client.get_container_client(container=container)
    pages = client.walk_blobs(name_starts_with=prefix, delimiter="/").by_page(token or None)
    found = [one async for one in await anext(pages) if one.get("size") is not None]
    etags = (str(one["etag"]).strip('"') for one in found)
    blobs = [
        {"name": one["name"], "size": one["size"], "etag": f'"{etag}"'}
        for one, etag in zip(found, etags, strict=True)
    ]
    return blobs, pages.continuation_token or ""
