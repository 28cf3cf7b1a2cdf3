"""PDF, DOCX and HTML documents written by hand: small, valid, the same bytes for the same words."""

from __future__ import annotations

import html
import io
import zipfile
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"
CONTENT_TYPES = (
    f'{XML}<Types xmlns="{PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/>'
    f'<Override PartName="/word/document.xml" ContentType="{WORD}.document.main+xml"/>'
    f'<Override PartName="/word/styles.xml" ContentType="{WORD}.styles+xml"/></Types>'
)
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELATIONS = (
    f'{XML}<Relationships xmlns="{PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{OFFICE}/%s"/></Relationships>'
)
STYLES = (
    f'{XML}<w:styles {W}><w:style w:type="paragraph" w:default="1" w:styleId="Normal">'
    '<w:name w:val="Normal"/><w:pPr><w:spacing w:after="120"/></w:pPr></w:style>'
    '<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/><w:basedOn w:val="Normal"/>'
    '<w:pPr><w:spacing w:before="240"/></w:pPr><w:rPr><w:b/><w:sz w:val="28"/></w:rPr></w:style></w:styles>'
)


def make_pdf(*pages: str) -> bytes:
    """Return a PDF with one page per argument; the lines of a page are lines in it."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, page in enumerate(pages):
        lines = b" ".join(b"(" + _pdf_string(line) + b") Tj T*" for line in page.split("\n"))
        stream = b"BT /F1 11 Tf 72 740 Td 15 TL " + lines + b" ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream))
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    entries = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{entries}"
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return bytes(out) + table.encode() + end.encode()


def _pdf_string(text: str) -> bytes:
    data = text.encode("cp1252", errors="replace")
    return data.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def make_docx(
    *paragraphs: str,
    headings: Iterable[str] = (),
    table: Sequence[Sequence[str]] | None = None,
    xml: str | None = None,
) -> bytes:
    """Return a DOCX with paragraphs, some of them headings, and a table behind them, or with this XML."""
    marked = set(headings)
    body = "".join(_paragraph(text, "Heading1" if text in marked else "") for text in paragraphs)
    if table:
        grid = "<w:gridCol/>" * max(len(row) for row in table)
        rows = "".join(
            f"<w:tr>{''.join(f'<w:tc>{_paragraph(cell)}</w:tc>' for cell in row)}</w:tr>" for row in table
        )
        # Word asks for a paragraph behind a table that ends a document.
        body += f"<w:tbl><w:tblPr/><w:tblGrid>{grid}</w:tblGrid>{rows}</w:tbl><w:p/>"
    parts = {
        "[Content_Types].xml": CONTENT_TYPES,
        "_rels/.rels": RELATIONS % 'officeDocument" Target="word/document.xml',
        "word/_rels/document.xml.rels": RELATIONS % 'styles" Target="styles.xml',
        "word/styles.xml": STYLES,
        "word/document.xml": xml or f"{XML}<w:document {W}><w:body>{body}</w:body></w:document>",
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in parts.items():
            # With a fixed time, so that the same words are the same bytes.
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def _paragraph(text: str, style: str = "") -> str:
    # Word splits a sentence into runs wherever it likes.
    half = len(text) // 2
    runs = "".join(
        f'<w:r><w:t xml:space="preserve">{escape(part)}</w:t></w:r>' for part in (text[:half], text[half:])
    )
    look = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{look}{runs}</w:p>"


def make_page(title: str, *paragraphs: str, headings: Iterable[str] = ()) -> bytes:
    """Return a web page in UTF-8."""
    marked = set(headings)
    body = "\n".join(
        f"<h2>{html.escape(text)}</h2>" if text in marked else f"<p>{html.escape(text)}</p>"
        for text in paragraphs
    )
    head = f'<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n</head>'
    page = f'<html lang="en">\n{head}\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>'
    return f"<!DOCTYPE html>\n{page}\n".encode()
