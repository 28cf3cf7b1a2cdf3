"""Names from outside become names of objects, and nothing else."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.client.models import ContentJob
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.storage.names import check_template, distinct, fill_in, job_fields, safe, source_name


def job(uuid: str = "u-1", **fields: Any) -> ContentJob:
    return ContentJob.model_validate({"uuid": uuid, "status": "COMPLETED", **fields})


@pytest.mark.parametrize(
    ("given_name", "expected"),
    [
        ("Vertrag Müller (2).pdf", "Vertrag Müller (2).pdf"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("/etc/passwd", "_etc_passwd"),
        ("C:\\temp\\a.pdf", "C__temp_a.pdf"),
        ("..", "unnamed"),
        (" . ", "unnamed"),
        ("", "unnamed"),
        (".hidden", "hidden"),
        ("a\x00b\nc\u202ed", "a_b_c_d"),
        ("what?versionId=7#x%2e", "what_versionId=7_x_2e"),
        ("e\u0301.txt", "é.txt"),
        ("契約書.docx", "契約書.docx"),
        ("\ud800.txt", "_.txt"),
    ],
)
def test_a_value_becomes_one_harmless_part_of_a_path(given_name: str, expected: str) -> None:
    assert safe(given_name) == expected


@given(st.text(alphabet=st.characters(), max_size=2000))
def test_any_value_becomes_one_short_printable_part(value: str) -> None:
    name = safe(value)
    assert name
    assert name.isprintable()
    assert not set(name) & set('/\\:*?"<>|#%&{}$!`')
    assert name not in (".", "..")
    assert len(name.encode()) <= 120
    assert safe(name) == name


def test_long_names_that_begin_alike_stay_apart_and_keep_their_suffix() -> None:
    first, second = safe("a" * 500 + "1.pdf"), safe("a" * 500 + "2.pdf")
    assert first != second
    assert first.endswith(".pdf")
    assert second.endswith(".pdf")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"fileName": "a.pdf"}, "a.pdf"),
        ({"fileName": "/x/y/a.pdf"}, "a.pdf"),
        ({"fileName": "C:\\x\\a.pdf"}, "a.pdf"),
        ({"sourceUrl": "https://example.com/a/b.html?x=/y#z"}, "b.html"),
        ({"sourceUrl": "https://example.com/a%20b"}, "a b"),
        ({"sourceUrl": "https://example.com/"}, "example.com"),
        ({"sourceUrl": "https://example.com"}, "example.com"),
        ({"sourceUrl": "http://[broken"}, ""),
        ({}, ""),
    ],
)
def test_a_document_is_called_by_its_file_name_or_the_end_of_its_address(
    fields: dict[str, str], expected: str
) -> None:
    assert source_name(job(**fields)) == expected


def test_a_document_without_a_name_is_called_like_its_job() -> None:
    assert job_fields(job("u-7")) == {"uuid": "u-7", "source_name": "u-7", "source_stem": "u-7"}
    assert job_fields(job("../u", fileName="a.b.pdf")) == {
        "uuid": "_u",
        "source_name": "a.b.pdf",
        "source_stem": "a.b",
    }


KNOWN = ("uuid", "source_name", "ds")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{uuid}.txt", "u-7.txt"),
        ("dt={ds}/{source_name}", "dt=2026-01-01/a.pdf"),
        ("plain", "plain"),
        ("a/b/c/{uuid}", "a/b/c/u-7"),
    ],
)
def test_a_valid_template_is_accepted_and_filled_in(template: str, name: str) -> None:
    check_template(template, KNOWN)
    assert fill_in(template, {"uuid": "u-7", "source_name": "a.pdf", "ds": "2026-01-01"}) == name


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{uuid", "is invalid"),
        ("{password}.txt", "unknown field {password}"),
        ("{uuid.__class__}", "unknown field {uuid.__class__}"),
        ("{uuid!r}", "unknown field {uuid}"),
        ("{uuid:>9999999}", "unknown field {uuid}"),
        ("{}", "unknown field {}"),
        ("/{uuid}", "relative path"),
        ("../{uuid}", "relative path"),
        ("a//{uuid}", "relative path"),
        ("{uuid}/", "relative path"),
        ("", "relative path"),
        ("a\n{uuid}", "control characters"),
    ],
)
def test_bad_templates_are_refused_with_what_there_is(template: str, complaint: str) -> None:
    with pytest.raises(ComplianceInputError) as refused:
        check_template(template, KNOWN)
    assert complaint in str(refused.value)


def test_values_bring_no_slashes_into_a_name() -> None:
    assert fill_in("dt={ds}/{source_name}", {"ds": "2026-01-01", "source_name": "../x/y"}) == (
        "dt=2026-01-01/_x_y"
    )


def test_parts_and_keys_stay_within_the_limits_of_stores() -> None:
    long = dict.fromkeys(("uuid", "source_name", "ds"), "ä" * 200)
    name = fill_in("{uuid}{source_name}{ds}.txt", long)
    assert len(name.encode()) <= 255
    assert name.endswith(".txt")
    with pytest.raises(ComplianceInputError, match="longer than 900 bytes"):
        fill_in("/".join(["{uuid}"] * 12), long)


def test_equal_names_are_told_apart_in_any_order() -> None:
    names = {"u1": "a.txt.gz", "u2": "A.txt.gz", "u3": "b.txt.gz"}
    told = distinct(names)
    assert told["u3"] == "b.txt.gz"
    assert len({name.casefold() for name in told.values()}) == 3
    assert all(name.endswith(".txt.gz") for name in told.values())
    assert distinct(dict(reversed(names.items()))) == told


def test_a_name_that_looks_like_a_told_apart_one_is_told_apart_too() -> None:
    first = distinct({"u1": "a.txt", "u2": "a.txt"})
    told = distinct({"u1": "a.txt", "u2": "a.txt", "u3": first["u1"]})
    assert len(set(told.values())) == 3


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1), st.text(alphabet=string.ascii_letters[:3] + "./", min_size=1), max_size=8
    )
)
def test_names_are_distinct_and_short_enough(names: dict[str, str]) -> None:
    told = distinct(names)
    assert told.keys() == names.keys()
    assert len({name.casefold() for name in told.values()}) == len(names)
