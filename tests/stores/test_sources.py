"""Sources in every store: names that look like patterns, folders, and what can't be listed."""

from __future__ import annotations

import pytest

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.ingest.sources import resolve
from tests.stores.stores import Store

KEYS = ("in/Offer [v2].pdf", "in/SCAN.PDF", "in/v.pdf", "in/deep/b.docx", "in/~$b.docx", "in [2026]/a?.pdf")


@pytest.fixture
def filled(store: Store) -> Store:
    for key in KEYS:
        store.put(key, b"x")
    return store


def found(store: Store, *sources: str) -> list[str]:
    return [
        each.removeprefix(store.base) for each in resolve([f"{store.base}{source}" for source in sources])
    ]


def test_a_key_or_folder_of_that_very_name_is_no_pattern(filled: Store) -> None:
    assert found(filled, "in/Offer [v2].pdf") == ["in/Offer [v2].pdf"]
    assert found(filled, "in [2026]/a?.pdf") == ["in [2026]/a?.pdf"]
    assert found(filled, "in [2026]/") == ["in [2026]/a?.pdf"]
    assert found(filled, "in [2026]/*.pdf") == ["in [2026]/a?.pdf"]
    assert found(filled, "in/[v].pdf") == ["in/v.pdf"]


def test_folders_and_patterns_find_documents(filled: Store) -> None:
    documents = ["in/Offer [v2].pdf", "in/SCAN.PDF", "in/deep/b.docx", "in/v.pdf"]
    assert found(filled, "in/") == documents
    assert found(filled, "in/**/*") == documents
    assert found(filled, "in/*.pdf") == ["in/Offer [v2].pdf", "in/v.pdf"]
    assert found(filled, "in/*/*.docx") == ["in/deep/b.docx"]
    assert found(filled, "i*/") == ["in [2026]/a?.pdf", *documents]


@pytest.mark.parametrize("source", ["nothing/", "nothing/*.pdf", "nothing/**/*.pdf"])
def test_empty_folder_has_no_documents_and_a_missing_one_is_an_error(store: Store, source: str) -> None:
    store.put("x", b"x")
    if store.kind != "local":
        assert found(store, source) == []  # an object store has no empty folders
        with pytest.raises(
            ComplianceStorageError, match="can't be searched: There is no bucket or container"
        ):
            resolve(f"{store.missing}{source}")
    else:
        with pytest.raises(ComplianceStorageError, match="can't be searched: There is no folder"):
            found(store, source)


@pytest.mark.parametrize("source", ["in/", "in/*.pdf", "i*/*.pdf", "in/**/*.pdf"])
def test_unlistable_folder_is_an_error(filled: Store, source: str) -> None:
    with pytest.raises(ComplianceStorageError, match="can't be searched"):
        resolve(f"{filled.stranger}{source}")
