from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import pytest

from airflow_provider.emulator.samples import make_docx, make_pdf
from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator
    from tests.emulator.pages import Site

URL = f"{CONTENT}/url"
BATCH = f"{CONTENT}/status/batch"


def test_a_file_must_come_as_multipart(raw: Raw) -> None:
    response = raw.post(f"{CONTENT}/file", data=make_pdf("x"), headers={"Content-Type": "application/pdf"})

    assert response.status_code == 415


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ([("document", ("a.pdf", b"%PDF-1.4"))], 400),
        ([("file", (None, b"%PDF-1.4"))], 400),
        ([("file", ("a.pdf", b"%PDF-1.4")), ("file", ("b.pdf", b"%PDF-1.4"))], 400),
        ([("file", ("a.pdf", b""))], 400),
        ([("file", ("a.txt", b"plain text"))], 415),
        ([("file", ("a.png", b"\x89PNG"))], 415),
        ([("note", (None, b"hello")), ("file", ("a.pdf", b"%PDF-1.4"))], 202),
        ([("file", ("damaged.docx", b"not a zip archive"))], 202),
        ([("file", ("without-suffix", make_pdf("x")))], 202),
        ([("file", ("without-suffix", make_docx("x")))], 202),
    ],
)
def test_exactly_one_part_named_file_with_a_pdf_or_docx_is_accepted(
    raw: Raw, files: list[tuple[str, Any]], status: int
) -> None:
    response = raw.post(f"{CONTENT}/file", files=files)

    assert response.status_code == status
    assert len(raw.service.jobs()) == (1 if status == 202 else 0)


def test_a_file_larger_than_memory_is_kept_for_comes_through(raw: Raw) -> None:
    padding = b"%" + b" " * 3 * 2**20 + b"\n"
    uuid = raw.submit(make_pdf("Deep inside") + padding)

    assert raw.content(uuid).text == "Deep inside"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"url": 5}',
        b'{"url": null}',
        b'{"url": "ftp://example.com/a"}',
        b'{"url": "example.com"}',
        b'{"url": "http://"}',
        b'{"url": "http://[bad"}',
        b'["http://example.com"]',
        b"{",
        b"",
        b'{"url": NaN}',
        b"\xff\xfe",
    ],
)
def test_a_url_request_without_a_web_address_is_refused(raw: Raw, body: bytes) -> None:
    response = raw.post(URL, data=body, headers={"Content-Type": "application/json"})

    assert response.status_code == 400
    assert response.json()["message"]
    assert raw.service.jobs() == []


def test_a_text_can_come_in_another_charset(raw: Raw, service: Emulator) -> None:
    uuid = service.add_job(text="Grüße", charset="iso-8859-1")

    response = raw.content(uuid)

    assert response.headers["Content-Type"] == "text/plain;charset=ISO-8859-1"
    assert response.content == "Grüße".encode("latin-1")


def test_a_batch_leaves_out_unknown_jobs_and_names_each_job_once(raw: Raw) -> None:
    first, second = raw.submit(), raw.submit()

    records = raw.batch(first, "unknown", second, first)

    assert sorted(record["uuid"] for record in records) == sorted([first, second])
    assert raw.batch() == []


def test_a_refresh_fetches_the_page_again(raw: Raw, service: Emulator, site: Site) -> None:
    url = site.put("/news", "<p>old</p>")
    uuid = raw.post(URL, json={"url": url}).json()["uuid"]
    assert raw.content(uuid).text == "old"
    site.put("/news", "<p>new</p>")

    response = raw.post(f"{CONTENT}/{uuid}/refresh")

    assert response.status_code == 202
    assert response.json()["uuid"] == uuid
    assert urljoin(response.url, response.headers["Location"]).endswith(f"/{uuid}/status")
    assert raw.content(uuid).text == "new"


def test_a_refresh_takes_no_body(raw: Raw) -> None:
    uuid = raw.submit()

    assert raw.post(f"{CONTENT}/{uuid}/refresh", json={"force": True}).status_code == 400


@pytest.mark.compliance_service(max_batch=2)
def test_a_batch_above_the_limit_gets_413(raw: Raw) -> None:
    assert raw.post(BATCH, json={"uuids": ["a", "b", "c"]}).status_code == 413
    assert raw.post(BATCH, json={"uuids": ["a", "b"]}).status_code == 200


def test_a_refresh_gives_a_failed_job_another_chance(raw: Raw, service: Emulator) -> None:
    service.fail_jobs("Out of memory.", match="big*.pdf", times=2)
    small, big = raw.submit(name="small.pdf"), raw.submit(name="big-one.pdf")
    assert raw.status(small).status_code == 303
    for _ in range(2):
        assert raw.status(big).json()["error"] == "Out of memory."
        assert raw.post(f"{CONTENT}/{big}/refresh").status_code == 202
    assert raw.content(big).text == "All services are described here."
    service.fail_jobs(times=None)
    service.clear_planned_failures()
    assert raw.status(raw.submit()).status_code == 303
