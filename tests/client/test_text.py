"""How sentences name a few of many things, and how reasons of many documents become one."""

from __future__ import annotations

import pytest

from airflow_provider.redaction.text import MAX_ENUMERATED, enumerate_few, generalize, plural


@pytest.mark.parametrize(("extra", "end"), [(0, ""), (1, " and 1 more"), (1200, " and 1,200 more")])
def test_few_of_many_are_named(extra: int, end: str) -> None:
    names = [f"name-{number}" for number in range(MAX_ENUMERATED + extra)]
    assert enumerate_few(names, 6) == ", ".join(name[:6] for name in names[:MAX_ENUMERATED]) + end


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'a.pdf' is not a PDF", "'b.docx' is not a PDF"),
        ("Job 123456 has failed.", "Job 654321 has failed."),
        ("https://one.example/a answered 503", "https://two.example/b answered 503"),
    ],
)
def test_reasons_that_differ_by_a_document_are_the_same(one: str, other: str) -> None:
    assert generalize(one) == generalize(other) != one
    assert generalize("The document is encrypted.") == "The document is encrypted."


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (12_345, "12,345 tasks")]
)
def test_a_number_has_its_noun_in_the_plural_unless_it_is_one(number: int, said: str) -> None:
    assert plural(number, "task") == said
