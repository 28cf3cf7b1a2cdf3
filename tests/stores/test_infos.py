"""Listings of every kind of store say the same as a request for each object."""

from __future__ import annotations

import asyncio

from airflow_provider.storage.infos import MIN_FOUND, find_infos
from airflow_provider.storage.locations import Location
from airflow_provider.storage.sources import fingerprint, version_in
from tests.stores.stores import Store


def test_listed_objects_are_those_that_exist(store: Store) -> None:
    names = [f"dt=1/Ü {number:03}-é+&.txt" for number in range(2 * MIN_FOUND)]
    for number, name in enumerate(names[1:], 1):
        store.put(name, b"x" * number)
    store.put("dt=1/_work/other.txt", b"other")
    uris = [f"{store.base}{name}" for name in names]
    found = asyncio.run(find_infos(uris, 60.0))
    assert set(found) == set(uris[1:])
    for number, uri in enumerate(uris):
        assert Location(uri).size() == (number or None)
        if uri in found:
            assert found[uri]["size"] == number
            assert version_in(found[uri]) == fingerprint(uri)


def test_small_objects_are_read_whatever_their_size(store: Store) -> None:
    store.put("small.json", b'{"a": 1}')
    store.put("empty.json", b"")
    below = Location(store.base.rstrip("/"))
    assert (below / "small.json").read_json({}) == {"a": 1}
    assert (below / "empty.json").read_json({}) == {}
    assert (below / "missing.json").read_json({"b": 2}) == {"b": 2}
