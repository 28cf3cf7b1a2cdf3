from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest
from pydantic.alias_generators import to_camel

from airflow_provider.client.models import ContentJob
from airflow_provider.emulator import Emulator
from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from requests import Response

JOB_FIELDS = {to_camel(name) for name in ContentJob.model_fields}  # what the client reads


def run_and_collect(**settings: object) -> list[Response]:
    """Submit 30 files and poll each; return the responses in order."""
    answers = []
    with Emulator(jobs="polls:1", **settings) as service, Raw(service) as raw:  # type: ignore[arg-type]  # a test's own
        for _ in range(30):
            submitted = raw.upload()
            uuid = submitted.json()["uuid"]
            answers += [submitted, raw.status(uuid), raw.status(uuid)]
    return answers


@pytest.fixture(scope="module")
def odd() -> list[Response]:
    return run_and_collect()


def test_some_locations_are_relative_and_all_lead_to_the_right_place(odd: list[Response]) -> None:
    locations = [(answer.url, answer.headers["Location"]) for answer in odd if "Location" in answer.headers]

    kinds = {"http" if each.startswith("http") else each[0] == "/" for _, each in locations}
    assert kinds == {"http", True, False}
    for url, location in locations:
        assert re.fullmatch(
            rf"http://127.0.0.1:\d+{CONTENT}/[0-9a-f-]+/(status|content)", urljoin(url, location)
        )


def test_some_records_have_fields_that_no_document_mentions(odd: list[Response]) -> None:
    extras = [set(answer.json()) - JOB_FIELDS for answer in odd if answer.content]

    assert any(extras)
    assert not all(extras)


def test_some_records_leave_out_what_is_null_and_some_say_null(odd: list[Response]) -> None:
    records = [answer.json() for answer in odd if answer.content]

    assert any("error" not in record for record in records)
    assert any(record.get("error", 1) is None for record in records)


def test_header_names_come_in_any_case(odd: list[Response]) -> None:
    names = {name for answer in odd for name in answer.headers}

    assert {"Content-Length", "content-length", "CONTENT-LENGTH"} <= names


def test_times_come_in_several_forms_of_rfc_3339_that_mean_the_same(odd: list[Response]) -> None:
    pairs = [
        (answer.json()["createdAt"], odd[n + 1].json()["createdAt"])
        for n, answer in enumerate(odd)
        if n % 3 == 0
    ]

    assert len({re.sub(r"\d", "0", text) for pair in pairs for text in pair}) >= 3
    for first, second in pairs:
        assert datetime.fromisoformat(first) == datetime.fromisoformat(second)


def test_a_batch_comes_in_another_order() -> None:
    with Emulator() as service, Raw(service) as raw:
        uuids = [service.add_job() for _ in range(20)]
        answered = [record["uuid"] for record in raw.batch(*uuids)]

    assert answered != uuids
    assert sorted(answered) == sorted(uuids)


def test_a_text_in_utf_8_may_come_without_a_charset() -> None:
    with Emulator() as service, Raw(service) as raw:
        uuid = service.add_job(text="ü")
        kinds = {raw.content(uuid).headers["Content-Type"] for _ in range(40)}

    assert kinds == {"text/plain", "text/plain;charset=UTF-8"}


def test_quirks_can_be_switched_off() -> None:
    answers = run_and_collect(quirks=False)
    with Emulator(quirks=False) as service, Raw(service) as raw:
        uuids = [service.add_job() for _ in range(20)]
        assert [record["uuid"] for record in raw.batch(*uuids)] == uuids

    for answer in answers:
        assert "Content-Length" in list(answer.headers)
        assert answer.headers.get("Location", "http").startswith("http")
        assert not answer.content or set(answer.json()) == JOB_FIELDS
