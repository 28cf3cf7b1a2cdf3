"""Extract text from PDF, DOCX and HTML."""

from __future__ import annotations

import re
import threading
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING
from xml.etree import ElementTree

import pypdfium2
from selectolax.lexbor import LexborHTMLParser

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT = "word/document.xml"
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
DOCX_ENDS = {"p": "\n", "br": "\n", "cr": "\n", "tr": "\n", "tc": "\t"}  # what follows an element
MAX_XML_BYTES = 16 * 2**20  # a small file can unpack to gigabytes
INVISIBLE = "script, style, noscript, template, head, svg, iframe, object"
BLOCK = re.compile(
    r"<(?=/?(address|article|aside|blockquote|br|d[dlt]|div|fieldset|fig(caption|ure)|footer|form|h[1-6r]|header|li"
    r"|main|nav|[ou]l|p|pre|section|table|tr)\b)",
    re.IGNORECASE,
)
CELL = re.compile(r"<(?=t[dh]\b)", re.IGNORECASE)

_pdfium = threading.Lock()


class ExtractionError(Exception):
    """The document can't be read; the message becomes the `error` of the job."""


@dataclass(frozen=True)
class ExtractionResult:
    """The result of processing: a text or an error."""

    text: str = ""
    error: str | None = None


def detect_kind(start: bytes, name: str = "", content_type: str = "") -> str | None:
    """Return `pdf` or `docx` by the first bytes, else by name or content type; None if neither."""
    if b"%PDF-" in start[:1024]:
        return "pdf"
    if start.startswith(b"PK\x03\x04"):
        return "docx"
    if name.lower().endswith(".pdf") or content_type == "application/pdf":
        return "pdf"
    if name.lower().endswith(".docx") or content_type.endswith("wordprocessingml.document"):
        return "docx"
    return None


def extract_pdf(source: IO[bytes]) -> str:
    """Return the text of all pages, with an empty line between two pages."""
    # PDFium is not thread-safe, and several emulators may run in one process.
    with _pdfium:
        try:
            document = pypdfium2.PdfDocument(source)
        except pypdfium2.PdfiumError as error:
            reason = str(error)
            if "password" in reason.lower():
                raise ExtractionError("The PDF document is protected by a password.") from None
            raise ExtractionError(f"The PDF document is damaged or not a PDF: {reason}") from None
        try:
            return "\n\n".join(_page_text(document, number) for number in range(len(document))).strip()
        except pypdfium2.PdfiumError as error:
            raise ExtractionError(f"A page of the PDF document is damaged: {error}") from None
        finally:
            document.close()


def _page_text(document: pypdfium2.PdfDocument, number: int) -> str:
    page = document[number]
    textpage = page.get_textpage()
    try:
        text: str = textpage.get_text_bounded()
    finally:
        textpage.close()
        page.close()
    # Not with a regular expression: it would backtrack at each space, which is quadratic.
    return "\n".join(line.rstrip(" \t") for line in re.split("\r\n|\r|\n", text)).strip()


def extract_docx(source: IO[bytes]) -> str:
    """Return the paragraphs as lines, the rows of tables as lines with tabs between the cells."""
    try:
        with zipfile.ZipFile(source) as archive, archive.open(DOCUMENT) as xml:
            data = xml.read(MAX_XML_BYTES + 1)
        if len(data) > MAX_XML_BYTES:
            raise ExtractionError(f"The DOCX document unpacks to more than {MAX_XML_BYTES // 2**20} MiB.")
        root = ElementTree.fromstring(data)  # noqa: S314 its parser stops entity bombs
    except KeyError:
        raise ExtractionError("The file is a ZIP archive, but not a DOCX document.") from None
    except (zipfile.BadZipFile, zlib.error, ElementTree.ParseError, EOFError, OSError, RuntimeError) as error:
        # zipfile raises RuntimeError for encrypted members.
        raise ExtractionError(f"The DOCX document is damaged: {error}") from None
    lines = (_tidy_cells(line) for line in "".join(_docx_parts(root)).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _docx_parts(root: ElementTree.Element) -> Iterator[str]:
    # A stack instead of recursion: hostile documents nest deeper than Python's recursion limit.
    stack: list[ElementTree.Element | str] = [root]
    cells = 0
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            cells -= item == "\t"
            yield " " if cells and item == "\n" else item
            continue
        tag = item.tag.removeprefix(W)
        if tag == "t":
            yield item.text or ""
        elif tag == "tab":
            yield "\t"
        elif tag != FALLBACK:  # which repeats the text for older programs
            cells += tag == "tc"
            stack.append(DOCX_ENDS.get(tag, ""))
            stack += reversed(item)


def _tidy_cells(line: str) -> str:
    return "\t".join(cell.strip(" ") for cell in line.split("\t")).strip()


def extract_html(data: bytes, charset: str | None = None) -> str:
    """Return the title and the visible text, one line per block."""
    # Whitespace of the source means nothing, so it can mark where blocks and cells begin and end.
    source = re.sub(r"\s+", " ", decode(data, charset))
    tree = LexborHTMLParser(CELL.sub("\t<", BLOCK.sub("\n<", source)))
    title = tree.css_first("title")
    heading = title.text(strip=True) if title is not None else ""
    for node in tree.css(INVISIBLE):
        node.decompose()
    # Not text() of the whole: it would recurse into pages of any depth.
    nodes = tree.body.traverse(include_text=True) if tree.body is not None else ()
    text = "".join(node.text(deep=False) for node in nodes if node.tag == "-text")
    lines = (_tidy_cells(re.sub(" +", " ", line)) for line in text.split("\n"))
    return "\n".join(line for line in (heading, *lines) if line)


def decode(data: bytes, charset: str | None) -> str:
    """Decode a page by its byte order mark, its HTTP header or its own declaration, else as UTF-8."""
    declared = re.search(rb"<meta[^>]+charset=[\"']?([\w-]+)", data[:2048], re.IGNORECASE)
    if data.startswith(b"\xef\xbb\xbf"):
        charset = "utf-8-sig"
    elif not charset and declared:
        charset = declared[1].decode("ascii")
    try:
        return data.decode(charset or "utf-8", errors="replace")
    except LookupError:
        return data.decode("utf-8", errors="replace")
