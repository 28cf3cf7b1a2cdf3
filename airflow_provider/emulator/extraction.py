"""Extract text from PDF, DOCX and HTML."""

from __future__ import annotations

import re
import threading
import zipfile
import zlib
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING
from xml.parsers import expat

import pypdfium2
from selectolax.lexbor import LexborHTMLParser, LexborNode

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT = "word/document.xml"
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# A small file can unpack to gigabytes.
MAX_XML_BYTES = 64 * 2**20
MAX_TEXT_CHARS = 64 * 2**20  # of a PDF, whose pages may all be the same object
XML_CHUNK_BYTES = 4 * 2**20  # expat before 2.6 parses a long token again with each chunk
INVISIBLE = "script, style, noscript, template, head, svg, iframe, object"
BLOCKS = re.compile(
    "address|article|aside|blockquote|body|br|d[dlt]|div|fieldset|fig(caption|ure)|footer|form|h[1-6r]|header|li|main"
    "|nav|[ou]l|p|pre|section|table|tr"
)

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
            return "\n\n".join(_page_texts(document)).strip()
        except pypdfium2.PdfiumError as error:
            raise ExtractionError(f"A page of the PDF document is damaged: {error}") from None
        finally:
            document.close()


def _page_texts(document: pypdfium2.PdfDocument) -> Iterator[str]:
    left = MAX_TEXT_CHARS
    for number in range(len(document)):
        text = _page_text(document, number)
        left -= len(text)
        if left < 0:
            raise ExtractionError(f"The PDF document has more than {MAX_TEXT_CHARS:,} characters.")
        yield text


def _page_text(document: pypdfium2.PdfDocument, number: int) -> str:
    page = document[number]
    textpage = page.get_textpage()
    try:
        text: str = textpage.get_text_bounded()
    finally:
        textpage.close()
        page.close()
    return strip_line_ends(text)


def strip_line_ends(text: str) -> str:
    """Strip spaces at the ends of lines."""
    # Not with a regular expression: it would backtrack at each space, which is quadratic.
    return "\n".join(line.rstrip(" \t") for line in re.split("\r\n|\r|\n", text)).strip()


def extract_docx(source: IO[bytes]) -> str:
    """Return the paragraphs as lines, the rows of tables as lines with tabs between the cells."""
    try:
        with zipfile.ZipFile(source) as archive, archive.open(DOCUMENT) as xml:
            return _docx_text(xml)
    except KeyError:
        raise ExtractionError("The file is a ZIP archive, but not a DOCX document.") from None
    except (zipfile.BadZipFile, zlib.error, expat.ExpatError, EOFError, OSError, RuntimeError) as error:
        # zipfile raises RuntimeError for encrypted members.
        raise ExtractionError(f"The DOCX document is damaged: {error}") from None


class _DocxReader:
    """Handles the events of the XML parser; a tree would take many times the file's size."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._text: list[str] | None = None  # of the current w:t
        self._cells = self._skipped = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.removeprefix(W)
        # Fallback repeats the text for older programs.
        self._skipped += tag == FALLBACK
        self._cells += tag == "tc"
        self._text = [] if tag == "t" else None

    def text(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def end(self, name: str) -> None:
        tag = name.removeprefix(W)
        self._skipped -= tag == FALLBACK
        self._cells -= tag == "tc"
        if tag == "tc":
            self.parts.append("\t")
        elif not self._skipped and (
            piece := _docx_piece(tag, "".join(self._text or ()), in_cell=self._cells > 0)
        ):
            self.parts.append(piece)
        self._text = None


def _docx_text(xml: IO[bytes]) -> str:
    reader = _DocxReader()
    left = MAX_XML_BYTES  # expat stops entity bombs, but does not limit the size
    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    while piece := xml.read(XML_CHUNK_BYTES):
        left -= len(piece)
        if left < 0:
            raise ExtractionError(f"The DOCX document unpacks to more than {MAX_XML_BYTES // 2**20} MiB.")
        parser.Parse(piece, False)
    parser.Parse(b"", True)
    lines = (_tidy_cells(line) for line in "".join(reader.parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _tidy_cells(line: str) -> str:
    return "\t".join(cell.strip(" ") for cell in line.split("\t")).strip()


def _docx_piece(tag: str, text: str, *, in_cell: bool) -> str:
    match tag:
        case "t":
            return text
        case "tab":
            return "\t"
        case "p" | "br" | "cr":
            return " " if in_cell else "\n"
        case "tr":
            return "\n"
        case _:
            return ""


def extract_html(data: bytes, charset: str | None = None) -> str:
    """Return the title and the visible text, one line per block."""
    text = decode(data, charset)
    tree = LexborHTMLParser(text)
    title = tree.css_first("title")
    heading = title.text(strip=True) if title is not None else ""
    for node in tree.css(INVISIBLE):
        node.decompose()
    text = f"{heading}\n{_html_text(tree.body or tree.root)}"
    lines = (_tidy_cells(re.sub(" +", " ", line)) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _html_text(root: LexborNode | None) -> str:
    parts: list[str] = []
    # A stack instead of recursion: hostile pages nest deeper than Python's recursion limit.
    stack: list[Iterator[LexborNode | str]] = [iter([root] if root is not None else [])]
    while stack:
        item = next(stack[-1], None)
        if item is None:
            stack.pop()
        elif isinstance(item, str):
            parts.append(item)
        elif item.tag == "-text":
            parts.append(re.sub(r"\s+", " ", item.text(deep=False)))
        else:
            edge = "\n" if BLOCKS.fullmatch(item.tag or "") else "\t" if item.tag in ("td", "th") else ""
            parts.append(edge)
            stack.append(chain(item.iter(include_text=True), (edge,)))
    return re.sub(r"\t+", "\t", "".join(parts))


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
