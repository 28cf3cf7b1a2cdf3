"""Text out of PDF, DOCX and HTML, with light libraries."""

from __future__ import annotations

import re
import threading
import zipfile
from typing import IO
from xml.etree import ElementTree

import pypdfium2
from selectolax.lexbor import LexborHTMLParser, LexborNode

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# A small file can unpack to gigabytes; no honest document has that much text.
MAX_XML = 64 * 2**20
INVISIBLE = "script, style, noscript, template, head, svg, iframe, object"
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
    return re.sub(r"[ \t]+\n", "\n", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def extract_docx(source: IO[bytes]) -> str:
    """Return the paragraphs as lines, the rows of tables as lines with tabs between the cells."""
    try:
        with zipfile.ZipFile(source) as archive, archive.open("word/document.xml") as xml:
            return _docx_text(_Limited(xml))
    except KeyError:
        raise ExtractionError("The file is a ZIP archive, but not a DOCX document.") from None
    except (zipfile.BadZipFile, ElementTree.ParseError, EOFError, OSError, RuntimeError) as error:
        # RuntimeError is how zipfile speaks of encrypted members.
        raise ExtractionError(f"The DOCX document is damaged: {error}") from None


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


def _docx_text(xml: _Limited) -> str:
    parts: list[str] = []
    cells = skipped = 0
    # Entity bombs are stopped by expat itself, the size by _Limited.
    for event, element in ElementTree.iterparse(xml, ("start", "end")):  # noqa: S314 see above
        tag = element.tag.removeprefix(W)
        opens = event == "start"
        if tag == FALLBACK:
            # The same text again, for programs that do not know the newer form.
            skipped += 1 if opens else -1
        elif tag == "tc":
            cells += 1 if opens else -1
            if not opens:
                parts.append("\t")
        elif not opens and not skipped:
            parts.append(_docx_piece(tag, element.text or "", in_cell=cells > 0))
        if not opens:
            element.clear()
    lines = (re.sub(r" *\t *", "\t", line).strip() for line in "".join(parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


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
    tree = LexborHTMLParser(decode(data, charset))
    title = tree.css_first("title")
    heading = title.text(strip=True) if title is not None else ""
    for node in tree.css(INVISIBLE):
        node.decompose()
    text = f"{heading}\n{_html_text(tree.body or tree.root)}"
    lines = (re.sub(r" *\t *", "\t", re.sub(" +", " ", line)).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _html_text(root: LexborNode | None) -> str:
    parts: list[str] = []
    # A stack instead of recursion: hostile pages are nested deeper than Python allows.
    stack: list[LexborNode | str] = [root] if root is not None else []
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            parts.append(item)
        elif item.tag == "-text":
            parts.append(re.sub(r"\s+", " ", item.text(deep=False)))
        else:
            edge = "\n" if BLOCKS.fullmatch(item.tag or "") else "\t" if item.tag in ("td", "th") else ""
            parts.append(edge)
            stack.append(edge)
            stack.extend(reversed(list(item.iter(include_text=True))))
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
