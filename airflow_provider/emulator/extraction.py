"""Text out of PDF, DOCX and HTML, with light libraries."""

from __future__ import annotations

import re
import struct
import threading
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import IO
from xml.parsers import expat

import pypdfium2
from selectolax.lexbor import LexborHTMLParser, LexborNode

DOCUMENT = "word/document.xml"
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# A small file can unpack to gigabytes, and keep a parser busy for hours; no honest document has that much.
MAX_XML = 64 * 2**20
MAX_TEXT = 64 * 2**20  # characters of a PDF, whose pages may all be the same one
MAX_ELEMENTS = 2_000_000
MAX_DIRECTORY = 2**20  # bytes that name the members of an archive
MAX_DEPTH = 5_000  # of HTML: the parser goes through all open elements again and again
MAX_ATTRIBUTES = 5_000
XML_PIECE = 4 * 2**20  # expat before 2.6 reads a long token anew with each piece
INVISIBLE = "script, style, noscript, template, head, svg, iframe, object"
# No end tag, or none that a page must have: they do not make a page deep.
FLAT = frozenset(
    b"area base br col embed hr img input link meta param source track wbr p li dt dd tr td th tbody thead "
    b"tfoot option optgroup colgroup html head body".split()
)
TAG = re.compile(rb"<(/?)([a-zA-Z][^\s/>]*)([^>]*)")
BLOCKS = re.compile(
    "address|article|aside|blockquote|body|br|d[dlt]|div|fieldset|fig(caption|ure)|footer|form|h[1-6r]|header|li|main"
    "|nav|[ou]l|p|pre|section|table|tr"
)

_pdfium = threading.Lock()


class ExtractionError(Exception):
    """The document cannot be read; the message goes into the field `error` of the job."""


def kind_of(start: bytes, name: str = "", content_type: str = "") -> str | None:
    """Tell `pdf` or `docx` by the first bytes, else by the name or the declared type; None is neither."""
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
    # PDFium is not safe for threads, and several emulators may run in one process.
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
    left = MAX_TEXT
    for number in range(len(document)):
        text = _page_text(document, number)
        left -= len(text)
        if left < 0:
            raise ExtractionError(f"The PDF document has more than {MAX_TEXT:,} characters.")
        yield text


def _page_text(document: pypdfium2.PdfDocument, number: int) -> str:
    page = document[number]
    textpage = page.get_textpage()
    try:
        text: str = textpage.get_text_bounded()
    finally:
        textpage.close()
        page.close()
    return tidy_page(text)


def tidy_page(text: str) -> str:
    """Return the text of a page without blanks at the ends of lines."""
    # Not by a regular expression: one that looks for blanks before something begins anew at each blank.
    return "\n".join(line.rstrip(" \t") for line in re.split("\r\n|\r|\n", text)).strip()


def extract_docx(source: IO[bytes]) -> str:
    """Return the paragraphs as lines, the rows of tables as lines with tabs between the cells."""
    _check_directory(source)
    try:
        with zipfile.ZipFile(source) as archive:
            if archive.getinfo(DOCUMENT).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{DOCUMENT} is packed in an unknown way")
            with archive.open(DOCUMENT) as xml:
                return _docx_text(_Limited(xml))
    except KeyError:
        raise ExtractionError("The file is a ZIP archive, but not a DOCX document.") from None
    except (zipfile.BadZipFile, zlib.error, expat.ExpatError, EOFError, OSError, RuntimeError) as error:
        # RuntimeError is how zipfile speaks of encrypted members.
        raise ExtractionError(f"The DOCX document is damaged: {error}") from None


def _check_directory(source: IO[bytes]) -> None:
    """Refuse an archive whose members alone would fill the memory; zipfile reads the names of all of them."""
    size = source.seek(0, 2)
    source.seek(max(0, size - 2**16 - 64))
    tail = source.read()
    source.seek(0)
    for found in re.finditer(rb"PK\x05\x06", tail):
        record = tail[found.start() : found.start() + 22]
        if tail[max(0, found.start() - 20) :].startswith(b"PK\x06\x07"):
            raise ExtractionError("The file is a ZIP64 archive, which no DOCX document needs to be.")
        if len(record) == 22 and struct.unpack_from("<L", record, 12)[0] > MAX_DIRECTORY:
            raise ExtractionError(f"The directory of the ZIP archive is larger than {MAX_DIRECTORY:,} bytes.")


class _Limited:
    """A stream that ends in an error when it turns out to be too long."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = MAX_XML

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ExtractionError(f"The DOCX document unpacks to more than {MAX_XML // 2**20} MiB.")
        return data


class _DocxReader:
    """Takes the events of the XML parser; no tree is made, which would be many times the file."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._text: list[str] | None = None  # what is being read of a w:t
        self._elements = self._cells = self._skipped = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise ExtractionError(f"The DOCX document has more than {MAX_ELEMENTS:,} elements.")
        tag = name.removeprefix(W)
        # The same text again, for programs that do not know the newer form.
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


def _docx_text(xml: _Limited) -> str:
    reader = _DocxReader()
    # Entity bombs are stopped by expat itself, the size by _Limited.
    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    while piece := xml.read(XML_PIECE):
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
    _check_page(text.encode(errors="replace"))
    tree = LexborHTMLParser(text)
    title = tree.css_first("title")
    heading = title.text(strip=True) if title is not None else ""
    for node in tree.css(INVISIBLE):
        node.decompose()
    text = f"{heading}\n{_html_text(tree.body or tree.root)}"
    lines = (_tidy_cells(re.sub(" +", " ", line)) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _check_page(data: bytes) -> None:
    """Refuse a page that the parser would need hours for: some of its work is quadratic."""
    open_: Counter[bytes] = Counter()
    depth = 0
    for number, tag in enumerate(TAG.finditer(data), 1):
        closes, name, attributes = tag[1], tag[2].lower(), tag[3]
        if number > MAX_ELEMENTS:
            raise ExtractionError(f"The page has more than {MAX_ELEMENTS:,} elements.")
        if len(attributes) > MAX_ATTRIBUTES and len(attributes.split()) > MAX_ATTRIBUTES:
            raise ExtractionError(f"An element of the page has more than {MAX_ATTRIBUTES:,} attributes.")
        if name in FLAT or (closes and not open_[name]):
            continue
        open_[name] += -1 if closes else 1
        depth += -1 if closes else 1
        if depth > MAX_DEPTH:
            raise ExtractionError(f"The page is nested more than {MAX_DEPTH:,} elements deep.")


def _html_text(root: LexborNode | None) -> str:
    parts: list[str] = []
    # A stack instead of recursion: hostile pages are nested deeper than Python allows.
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
