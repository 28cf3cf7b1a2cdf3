"""How documents are split into shards, and what a list of a shard says."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.nights.index.ranges import HashRange, hash_of
from airflow_provider.nights.ingest import shards
from airflow_provider.nights.ingest.shards import chunk, list_shards, shard_folder
from airflow_provider.nights.ingest.sources import normalize, resolve
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.sources import fingerprint

PAGES = [f"https://example.com/{number}.pdf" for number in range(40)]
MOST = 1024


def shards_of(*given: Any) -> list[str]:
    """Return the list files of all shards."""
    return list_shards(*given)[0]


def documents(uris: Iterable[str]) -> list[list[str]]:
    """Return the documents of each shard."""
    return [list(resolve(uri)) for uri in uris]


@settings(max_examples=30, deadline=None)
@given(
    lists=st.lists(st.sets(st.sampled_from(PAGES), min_size=1), min_size=2, max_size=4),
    size=st.integers(1, 20),
)
def test_a_cleared_lister_leaves_each_document_in_its_place(
    tmp_path_factory: pytest.TempPathFactory, lists: list[set[str]], size: int
) -> None:
    night = f"file://{tmp_path_factory.mktemp('night')}/"
    runs = [documents(shards_of(sorted(given), night, size, MOST)) for given in lists]
    for sources, run in zip(lists, runs, strict=True):
        assert sorted(source for shard in run for source in shard) == sorted(sources)
    assert all(runs[0])  # no shard is empty
    for before, after in pairwise(runs):
        place = {source: number for number, shard in enumerate(before) for source in shard}
        for number, shard in enumerate(after):
            assert {place.get(source, number) for source in shard} <= {number}


def test_a_cleared_lister_loses_no_shard_whose_list_is_gone(tmp_path: Path) -> None:
    before = documents(uris := shards_of(PAGES, f"file://{tmp_path}/", 3, MOST))
    Path(uris[2].removeprefix("file://")).unlink()
    assert documents(shards_of(PAGES, f"file://{tmp_path}/", 3, MOST)) == before


def test_spellings_of_one_document_are_in_one_chunk() -> None:
    one, other = PAGES[0], next(page for page in PAGES if hash_of(page) >> 31 != hash_of(PAGES[0]) >> 31)
    chunks = chunk([one, other, one.replace("https", "HTTPS"), f"{other}"], 2)
    assert sorted(map(sorted, chunks)) == sorted(
        [sorted([one, one.replace("https", "HTTPS")]), [other, other]]
    )


def test_a_shard_has_the_same_documents_every_night_and_keeps_their_order(tmp_path: Path) -> None:
    given = PAGES[::-1]
    first = documents(shards_of(given, f"{tmp_path}/1/", 10, MOST))
    assert len(first) == 4
    assert all(shard == sorted(shard, key=given.index) for shard in first)
    gone, new = PAGES[7], "https://example.com/new.pdf"
    second = documents(shards_of([*(set(given) - {gone}), new], f"{tmp_path}/2/", 10, MOST))
    assert [set(shard) - {new} for shard in second] == [set(shard) - {gone} for shard in first]
    assert documents(shards_of(given, f"{tmp_path}/3/", 40, MOST)) == [given]


@pytest.mark.parametrize("spilled", [False, True])
def test_shards_split_the_hashes_evenly_also_by_way_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spilled: bool
) -> None:
    if spilled:
        monkeypatch.setattr(shards, "BUFFER_ROWS", 1)
    sources = [f"s3://aws@in/{number}.pdf" for number in range(1000)]
    for size, count in ((1, 1000), (100, 16), (300, 4), (5000, 1)):
        found = documents(shards_of(sources, f"{tmp_path}/{size}-{spilled}/", size, 1 << 13))
        assert sorted(source for shard in found for source in shard) == sorted(sources)
        if size != 1:
            assert len(found) == count
            assert len({HashRange.of(shard) for shard in found}) == count
            assert max(map(len, found)) < 1.6 * len(sources) / count


def test_shards_grow_only_where_airflow_would_map_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_SIZE", 2)
    assert len(shards_of(PAGES, f"{tmp_path}/1/", None, 9)) == 4
    assert len(shards_of(PAGES, f"{tmp_path}/2/", None, 1)) == 1
    with pytest.raises(ComplianceInputError, match=r"shard_size=2 are 32 shards.* 16 .*max_map_length.* 3 "):
        shards_of(PAGES, f"{tmp_path}/3/", 2, 16)
    assert not (tmp_path / "3").exists()
    assert len(shards_of(PAGES, f"{tmp_path}/3/", 3, 16)) <= 16


def test_a_list_knows_the_versions_of_files_and_is_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.pdf").write_text("a")
    signed = "https://example.com/?sig=s3cret&sv=1"
    with caplog.at_level(logging.WARNING):
        [uri] = shards_of([f"{tmp_path}/", signed], f"file://{tmp_path}/out/", None, MOST)
    assert resolve(uri) == {f"{tmp_path}/a.pdf": fingerprint(f"{tmp_path}/a.pdf"), signed: ""}
    assert Path(uri.removeprefix("file://")).stat().st_mode & 0o777 == 0o600
    assert caplog.text.count("contain a login or a signature") == 1
    assert "s3cret" not in caplog.text


def test_a_manifest_as_a_list_tells_no_versions(tmp_path: Path) -> None:
    """They are those of another time."""
    (tmp_path / "list.jsonl").write_text('{"source": "/in/a.pdf", "source_version": "1-2"}\n')
    assert resolve(f"{tmp_path}/list.jsonl") == {"/in/a.pdf": ""}


def test_a_list_that_is_gone_names_the_task_that_writes_it(tmp_path: Path) -> None:
    [uri] = shards_of(PAGES, f"{tmp_path}/", None, MOST)
    Path(uri).unlink()
    with pytest.raises(ComplianceStorageError, match="Clear list_documents, which writes it"):
        resolve(uri)


def test_nothing_to_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ComplianceInputError, match="no documents"):
        shards_of(f"{tmp_path}/", f"{tmp_path}/nights/", 2, MOST)
    with pytest.raises(ComplianceStorageError, match="can't be searched"):
        shards_of(f"{tmp_path}/gone/", f"{tmp_path}/nights/", 2, MOST)
    with pytest.raises(ComplianceInputError, match="source 'in/' depends on the worker's current folder"):
        shards_of("in/", f"{tmp_path}/nights/", 2, MOST)


def test_texts_are_in_a_folder_of_their_shard_if_there_are_several(tmp_path: Path) -> None:
    [only] = shards_of(PAGES, f"{tmp_path}/1/", None, MOST)
    uris = shards_of(PAGES, f"{tmp_path}/2/", 10, MOST)
    assert [shard_folder(uri) for uri in (only, "/in/a.jsonl", uris)] == ["", "", ""]
    names = [
        ComplianceIngestOperator(task_id="ingest", sources=uri, destination=f"{tmp_path}/").title
        for uri in uris
    ]
    assert names == [f"shard {number + 1}" for number in range(len(uris))]
    folders = [shard_folder([uri]) for uri in uris]
    assert folders == [f"shard-{hash_of(resolved[0]) >> 30:05}/" for resolved in documents(uris)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("HTTPS://Example.COM:443/A/./b?x=/./", "https://example.com/A/b?x=/./"),
        ("http://User@Host:80", "http://User@host"),
        ("http://host:8080/a", "http://host:8080/a"),
        ("https://[::1]:443/a", "https://[::1]/a"),
        ("S3://Aws@Bucket/./A", "s3://Aws@Bucket/./A"),  # a key may have a dot
        ("FILE:///in/./a.pdf", "file:///in/a.pdf"),
        ("/in/././a.pdf", "/in/a.pdf"),
        ("/in/../a./.b.pdf", "/in/../a./.b.pdf"),
        (r"C:\\in\\./a.pdf", r"C:\\in\\./a.pdf"),
        ("", ""),
    ],
)
def test_spellings_that_certainly_mean_the_same_are_one_document(given: str, expected: str) -> None:
    assert normalize(given) == expected


def test_a_sample_is_the_same_every_night_whatever_comes_and_goes(tmp_path: Path) -> None:
    by_hash = sorted(PAGES, key=hash_of)
    # The last ones to be listed have the smallest hashes.
    uris, total = list_shards([by_hash[0], *by_hash[::-1]], f"{tmp_path}/1/", None, MOST, 10)
    assert total == len(PAGES) + 1
    ([first],) = [documents(uris)]
    assert {*first} == {*by_hash[:10]}
    gone, left = first[0], [page for page in PAGES if page not in first]
    uris, _ = list_shards([page for page in PAGES if page != gone], f"{tmp_path}/2/", None, MOST, 10)
    ([second],) = [documents(uris)]
    assert {*first} - {*second} == {gone}
    assert len({*second} & {*left}) == 1


def test_a_sample_that_is_larger_than_the_list_is_all_of_it(tmp_path: Path) -> None:
    uris, total = list_shards(PAGES, f"{tmp_path}/", None, MOST, 1000)
    assert (documents(uris), total) == ([PAGES], len(PAGES))
