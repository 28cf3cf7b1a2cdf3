from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.evidence.chain import Chain, ChainRecord
from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.storage.atomic import create_once
from airflow_provider.storage.locations import Location


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(Location(f"file://{tmp_path}/out"))


def add(chain: Chain, **record: Any) -> ChainRecord:
    return chain.append(lambda head: record)


def test_each_record_names_the_hash_of_the_one_before_it(chain: Chain) -> None:
    one, two = add(chain, night="n1"), add(chain, night="n2")
    assert one.record["previous"] is None
    assert two.record["previous"] == {"number": 1, "sha256": one.sha256}
    data = Path(one.uri.removeprefix("file://")).read_bytes()
    assert hashlib.sha256(data).hexdigest() == one.sha256 == chain.read(1).sha256
    assert [each.record["night"] for each in chain.newest_first(two)] == ["n2", "n1"]


def test_two_that_close_at_once_get_two_numbers_in_one_chain(chain: Chain) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add(chain, night=number), range(24)))
    entries = [chain.read(number) for number in chain.numbers()]
    assert [each.number for each in entries] == list(range(1, 25))
    assert {each.record["night"] for each in entries} == set(range(24))
    assert [each.record["previous"]["sha256"] for each in entries[1:]] == [
        each.sha256 for each in entries[:-1]
    ]


def test_nothing_is_added_where_the_record_is_there_already(chain: Chain) -> None:
    first = add(chain, night="n1")
    assert chain.append(lambda head: first) is first
    assert chain.numbers() == [1]


def test_a_record_is_made_again_after_what_another_task_has_added(chain: Chain) -> None:
    heads: list[int | None] = []

    def make(head: ChainRecord | None) -> dict[str, Any]:
        heads.append(head.number if head else None)
        if len(heads) == 1:
            add(Chain(Location(chain.folder.uri.removesuffix("/_evidence/nights"))), night="faster")
        return {"night": "slower"}

    entry = chain.append(make)
    assert (heads, entry.number, chain.read(1).record["night"]) == ([None, 1], 2, "faster")


def test_other_files_beside_the_records_do_not_matter(chain: Chain, tmp_path: Path) -> None:
    add(chain, night="n1")
    for name in ("00000002.json.part", "2.json", ".x.part", "notes.txt"):
        (tmp_path / "out/_evidence/nights" / name).write_text("{}")
    assert chain.numbers() == [1]


@pytest.mark.parametrize("content", ["", "[]", '{"number": 1'])
def test_a_damaged_head_is_named(chain: Chain, tmp_path: Path, content: str) -> None:
    entry = add(chain, night="n1")
    Path(entry.uri.removeprefix("file://")).write_text(content)
    with pytest.raises(ComplianceStorageError, match=r"00000001\.json' is damaged"):
        add(chain, night="n2")


def test_a_name_is_created_once(tmp_path: Path) -> None:
    location = Location(f"file://{tmp_path}/a/b.json")
    assert create_once(location, b"one")
    assert not create_once(location, b"two")
    assert json.dumps((tmp_path / "a/b.json").read_text()) == '"one"'
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["b.json"]
