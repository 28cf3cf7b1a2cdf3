from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
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
    assert [entry.record["night"] for entry in chain.newest_first(two)] == ["n2", "n1"]


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


@pytest.mark.parametrize("content", ["", "[]", '{"number": 1', '{"revision": "2"}'])
def test_a_damaged_head_is_named(chain: Chain, tmp_path: Path, content: str) -> None:
    entry = add(chain, night="n1")
    Path(entry.uri.removeprefix("file://")).write_text(content)
    with pytest.raises(ComplianceStorageError, match=r"00000001\.json' is damaged"):
        add(chain, night="n2")
