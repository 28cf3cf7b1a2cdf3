from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import pytest

from airflow_provider.emulator import extraction
from airflow_provider.emulator.extraction import ExtractionError, extract_docx, extract_html, extract_pdf
from airflow_provider.emulator.samples import make_docx, make_pdf
from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from tests.emulator.pages import Site


def test_a_pdf_gives_its_lines_and_an_empty_line_between_pages() -> None:
    assert extract_pdf(io.BytesIO(make_pdf("One\nTwo", "Three"))) == "One\nTwo\n\nThree"


def test_a_pdf_without_text_gives_an_empty_text() -> None:
    assert extract_pdf(io.BytesIO(make_pdf(""))) == ""


@pytest.mark.parametrize("data", [b"%PDF-1.4 broken", make_pdf("x")[:150], b"nothing"])
def test_a_broken_pdf_says_so(data: bytes) -> None:
    with pytest.raises(ExtractionError, match="damaged or not a PDF"):
        extract_pdf(io.BytesIO(data))


def test_a_pdf_with_a_password_says_so() -> None:
    zeros = b"00" * 32
    lock = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%b> /U <%b> >>" % (zeros, zeros)
    data = make_pdf("x").replace(b"/Root 1 0 R", b"/Root 1 0 R /ID [<00> <00>] " + lock)

    with pytest.raises(ExtractionError, match="protected by a password"):
        extract_pdf(io.BytesIO(data))


MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
CHOICE = "<mc:Choice><w:t>once</w:t></mc:Choice><mc:Fallback><w:t>twice</w:t></mc:Fallback>"
CELLS = "<w:tc><w:p><w:t>a</w:t></w:p><w:p><w:t>b</w:t></w:p></w:tc><w:tc><w:p><w:t>c</w:t></w:p></w:tc>"


@pytest.mark.parametrize(
    ("xml", "text"),
    [
        ("<w:p><w:r><w:t>Second &amp; </w:t></w:r><w:r><w:t>last</w:t></w:r></w:p>", "Second & last"),
        (f"<w:p><w:t>x</w:t></w:p><w:tbl><w:tr>{CELLS}</w:tr><w:tr>{CELLS}</w:tr></w:tbl><w:p/>",
         "x\na b\tc\na b\tc"),
        ("<w:p><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:p>", "a\tb\nc"),
        (f"<w:p><mc:AlternateContent {MC}>{CHOICE}</mc:AlternateContent></w:p>", "once"),
        ("<w:p>" * 5000 + "<w:t>deep</w:t>" + "</w:p>" * 5000, "deep"),
    ],
)  # fmt: skip
def test_a_docx_gives_paragraphs_and_table_rows_as_lines(xml: str, text: str) -> None:
    assert extract_docx(io.BytesIO(make_docx(xml=xml))) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 nonsense", "damaged"),
        (make_docx("x")[:-30], "damaged"),
        (make_docx(xml="<broken"), "damaged"),
    ],
)
def test_a_broken_docx_says_so(data: bytes, message: str) -> None:
    with pytest.raises(ExtractionError, match=message):
        extract_docx(io.BytesIO(data))


def test_an_archive_that_is_not_a_docx_says_so() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("readme.txt", "hello")

    with pytest.raises(ExtractionError, match="not a DOCX"):
        extract_docx(data)


def test_a_docx_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "MAX_XML_BYTES", 2**20)
    with pytest.raises(ExtractionError, match="unpacks to more than 1 MiB"):
        extract_docx(io.BytesIO(make_docx("a" * 2**21)))


def test_damaged_compression_says_so() -> None:
    data = bytearray(make_docx("word " * 5_000))
    data[data.index(b"word/document.xml") + 60] ^= 0xFF

    with pytest.raises(ExtractionError, match="damaged"):
        extract_docx(io.BytesIO(bytes(data)))


def test_a_page_gives_its_title_and_its_visible_text_block_by_block() -> None:
    page = b"""<html><head><title>Terms &amp; more</title><style>p{}</style></head><body>
      <script>alert(1)</script><h1>Scope</h1><p>One <b>two</b>
      three</p><ul><li>a<li>b</ul><table><tr><td>x</td><td>y</td></tr></table>tail<template>no</template></body>"""

    assert extract_html(page) == "Terms & more\nScope\nOne two three\na\nb\nx\ty\ntail"


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        ("<p>Grüße</p>".encode("latin-1"), "iso-8859-1"),
        ('<meta charset="iso-8859-1"><p>Grüße</p>'.encode("latin-1"), None),
        ("<p>Grüße</p>".encode(), None),
        (b"\xef\xbb\xbf" + "<p>Grüße</p>".encode(), "latin-1"),
        ("<p>Grüße</p>".encode(), "no-such-charset"),
    ],
)
def test_a_page_is_decoded_as_it_says(data: bytes, charset: str | None) -> None:
    assert extract_html(data, charset) == "Grüße"


def read_page(raw: Raw, url: str) -> tuple[str, str]:
    """Submit a URL; return the status of the job, and its text or error."""
    uuid = raw.post(f"{CONTENT}/url", json={"url": url}).json()["uuid"]
    [record] = raw.batch(uuid)
    return record["status"], raw.content(uuid).text if record["status"] == "COMPLETED" else record["error"]


def test_an_address_may_lead_to_a_pdf_a_docx_or_plain_text(raw: Raw, site: Site) -> None:
    pdf = site.put("/a", make_pdf("from a pdf"), "application/pdf")
    docx = site.put("/b.docx", make_docx("from a docx"), "application/octet-stream")
    text = site.put("/c", "from a text", "text/plain")

    texts = [read_page(raw, url) for url in (pdf, docx, text)]

    assert texts == [("COMPLETED", f"from a {kind}") for kind in ("pdf", "docx", "text")]


def test_redirects_are_followed(raw: Raw, site: Site) -> None:
    target = site.put("/new", "<p>moved</p>")
    site.pages["/old"] = (302, {"Location": target}, b"")

    assert read_page(raw, site.url + "/old") == ("COMPLETED", "moved")


def test_an_address_that_cannot_be_read_ends_failed_and_says_why(raw: Raw, site: Site) -> None:
    site.pages["/loop"] = (302, {"Location": "/loop"}, b"")
    site.put("/image", b"\x89PNG", "image/png")
    site.put("/broken.pdf", b"%PDF-1.4 broken", "application/pdf")

    assert read_page(raw, site.url + "/missing")[1].endswith("returned HTTP 404 Not Found.")
    assert read_page(raw, site.url + "/image")[1] == "Pages of type image/png are not supported."
    assert "damaged" in read_page(raw, site.url + "/broken.pdf")[1]
    assert read_page(raw, site.url + "/loop")[0] == "FAILED"
    assert "failed" in read_page(raw, "http://127.0.0.1:9/")[1]
