"""Sources in every store: names that look like patterns, folders, and what can't be listed."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.nights.ingest import sources
from tests.stores.stores import Store

KEYS = ("in/Offer [v2].pdf", "in/SCAN.PDF", "in/v.pdf", "in/deep/b.docx", "in/~$b.docx", "in [2026]/a?.pdf")


def resolve(given: Any) -> list[str]:
    return list(sources.resolve(given))


@pytest.fixture
def filled(store: Store) -> Store:
    for key in KEYS:
        store.put(key, b"x")
    return store


def found(store: Store, *sources: str) -> list[str]:
    return [uri.removeprefix(store.base) for uri in resolve([f"{store.base}{source}" for source in sources])]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("in/Offer [v2].pdf", ["in/Offer [v2].pdf"]),  # a key of that very name is not a pattern
        ("in [2026]/*.pdf", ["in [2026]/a?.pdf"]),
        ("in/", ["in/Offer [v2].pdf", "in/SCAN.PDF", "in/deep/b.docx", "in/v.pdf"]),
        ("in/*/*.docx", ["in/deep/b.docx"]),
        ("i*/**/*[cf]", ["in [2026]/a?.pdf", "in/Offer [v2].pdf", "in/v.pdf"]),
    ],
)
def test_folders_and_patterns_find_documents(filled: Store, source: str, expected: list[str]) -> None:
    assert found(filled, source) == expected


def test_a_missing_bucket_or_folder_is_an_error(filled: Store) -> None:
    base = filled.base if filled.kind == "local" else filled.missing
    for source in ("nothing/", "nothing/*.pdf"):
        with pytest.raises(ComplianceStorageError, match="can't be searched: There is no"):
            resolve(f"{base}{source}")


@pytest.mark.parametrize("source", ["in/", "i*/*.pdf"])
def test_unlistable_folder_is_an_error(filled: Store, source: str) -> None:
    with pytest.raises(ComplianceStorageError, match="can't be searched"):
        resolve(f"{filled.stranger}{source}")
