"""Extract text from PDF, DOCX and HTML: of uploads and of fetched pages, in the background."""

from __future__ import annotations

import asyncio
import logging
import re
import struct
import threading
import zipfile
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from typing import IO, TYPE_CHECKING
from xml.parsers import expat

import aiohttp
import pypdfium2
from selectolax.lexbor import LexborHTMLParser, LexborNode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from airflow_provider.emulator.service import State
    from airflow_provider.emulator.service.content import Job

log = logging.getLogger(__name__)
DOCUMENT = "word/document.xml"
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# A small file can unpack to gigabytes or keep a parser busy for hours.
MAX_XML_BYTES = 64 * 2**20
MAX_TEXT_CHARS = 64 * 2**20  # of a PDF, whose pages may all be the same object
MAX_ELEMENTS = 2_000_000
MAX_DIRECTORY_BYTES = 2**20  # of the central directory of an archive
MAX_DEPTH = 5_000  # of HTML: the parser scans all open elements repeatedly
MAX_ATTRIBUTES = 5_000
XML_CHUNK_BYTES = 4 * 2**20  # expat before 2.6 parses a long token again with each chunk
INVISIBLE = "script, style, noscript, template, head, svg, iframe, object"
# Elements with no end tag, or an optional one: they do not nest.
FLAT = frozenset(
    b"area base br col embed hr img input link meta param source track wbr p li dt dd tr td th tbody thead "
    b"tfoot option optgroup colgroup html head body".split()
)
TAG = re.compile(rb"<(/?)([a-zA-Z][^\s/>]*)([^>]*)")
BLOCKS = re.compile(
    "address|article|aside|blockquote|body|br|d[dlt]|div|fieldset|fig(caption|ure)|footer|form|h[1-6r]|header|li|main"
    "|nav|[ou]l|p|pre|section|table|tr"
)

EXTRACTION_WAIT_SECONDS = 30.0  # of a poll for a text that is due: `instant` holds on a slow machine, too

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
    _check_directory(source)
    try:
        with zipfile.ZipFile(source) as archive:
            if archive.getinfo(DOCUMENT).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{DOCUMENT} uses an unsupported compression")
            with archive.open(DOCUMENT) as xml:
                return _docx_text(xml)
    except KeyError:
        raise ExtractionError("The file is a ZIP archive, but not a DOCX document.") from None
    except (zipfile.BadZipFile, zlib.error, expat.ExpatError, EOFError, OSError, RuntimeError) as error:
        # zipfile raises RuntimeError for encrypted members.
        raise ExtractionError(f"The DOCX document is damaged: {error}") from None


def _check_directory(source: IO[bytes]) -> None:
    """Refuse an archive with a huge central directory, which zipfile would read into memory."""
    size = source.seek(0, 2)
    source.seek(max(0, size - 2**16 - 64))
    tail = source.read()
    source.seek(0)
    for found in re.finditer(rb"PK\x05\x06", tail):
        record = tail[found.start() : found.start() + 22]
        if tail[max(0, found.start() - 20) :].startswith(b"PK\x06\x07"):
            raise ExtractionError("The file is a ZIP64 archive, not a DOCX document.")
        if len(record) == 22 and struct.unpack_from("<L", record, 12)[0] > MAX_DIRECTORY_BYTES:
            raise ExtractionError(f"The ZIP directory is larger than {MAX_DIRECTORY_BYTES:,} bytes.")


class _DocxReader:
    """Handles the events of the XML parser; a tree would take many times the file's size."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._text: list[str] | None = None  # of the current w:t
        self._elements = self._cells = self._skipped = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise ExtractionError(f"The DOCX document has more than {MAX_ELEMENTS:,} elements.")
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
    """Refuse a page that would keep the parser busy for hours: some of its work is quadratic."""
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


class Processor:
    """Extracts texts in a thread, one document at a time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compliance-emulator-extract")
        self._session: aiohttp.ClientSession | None = None
        state.jobs.on_evict = self.drop

    async def close(self) -> None:
        """Cancel fetches, and finish reading files, which can't be fetched again."""
        tasks = dict(self._tasks)
        for uuid, task in tasks.items():
            job = self._state.jobs.get(uuid)
            if job is None or job.source_type == "URL":
                task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        self._threads.shutdown(cancel_futures=True)

    def resume(self) -> None:
        """Restart the fetches that were in flight when the emulator was stopped."""
        for job in self._state.jobs:
            if job.source_type == "URL" and job.outcome is None:
                self.read_url(job)

    def read_file(self, job: Job, source: IO[bytes]) -> None:
        """Start extracting the text of an upload; closes the file."""
        reading = asyncio.get_running_loop().run_in_executor(
            self._threads, _extract_file, source, job.file_name or ""
        )
        reading.add_done_callback(lambda done: source.close())
        # Shielded: the file must not be closed while the thread reads it.
        self._spawn(job, lambda: asyncio.shield(reading))

    def read_url(self, job: Job) -> None:
        """Start fetching the page of a job, instead of an earlier fetch."""
        self.drop(job)
        self._spawn(job, lambda: self._fetch(job))

    def drop(self, job: Job) -> None:
        """Stop working on a job."""
        task = self._tasks.pop(job.uuid, None)
        if task is not None:
            task.cancel()

    async def wait_for_due(self, jobs: list[Job]) -> None:
        """Wait briefly for the texts of jobs that are due."""
        state = self._state
        progress, now = state.settings.progress, state.clock.now()
        due = [self._tasks[job.uuid] for job in jobs if job.uuid in self._tasks and job.is_due(progress, now)]
        if due:
            await asyncio.wait(due, timeout=EXTRACTION_WAIT_SECONDS)

    def _spawn(self, job: Job, work: Callable[[], Awaitable[str]]) -> None:
        task = asyncio.get_running_loop().create_task(self._process(job, work))
        self._tasks[job.uuid] = task
        task.add_done_callback(lambda done: self._tasks.get(job.uuid) is done and self._tasks.pop(job.uuid))

    async def _process(self, job: Job, work: Callable[[], Awaitable[str]]) -> None:
        try:
            outcome = ExtractionResult(text=await work())
        except ExtractionError as error:
            outcome = ExtractionResult(error=str(error))
        except Exception as error:
            log.exception("Processing job %s failed", job.uuid)
            outcome = ExtractionResult(error=f"Internal error: {type(error).__name__}")
        # A test may have set the outcome in the meantime.
        if job.outcome is None:
            self._state.set_outcome(job, outcome)

    async def _fetch(self, job: Job) -> str:
        url = job.source_url or ""
        settings = self._state.settings
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No limit and no keep-alive: fetches never wait for each other.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        timeout = aiohttp.ClientTimeout(total=settings.fetch_timeout)
        try:
            async with self._session.get(url, timeout=timeout, max_redirects=5) as response:
                job.fetched = self._state.clock.now()
                if response.status != 200:
                    raise ExtractionError(
                        f"Fetching {url} returned HTTP {response.status} {response.reason}."
                    )
                data = await _read_at_most(response, settings.fetch_limit)
                kind, charset = response.content_type, response.charset
        except TimeoutError:
            raise ExtractionError(f"Fetching {url} took longer than {settings.fetch_timeout:g} s.") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ExtractionError(f"Fetching {url} failed: {error or type(error).__name__}") from None
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, _extract_page, data, kind, charset, url
        )


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_chunked(2**16):
        data += chunk
        if len(data) > limit:
            raise ExtractionError(f"The page is larger than {limit} bytes.")
    return bytes(data)


def _extract_file(source: IO[bytes], name: str) -> str:
    start = source.read(1024)
    source.seek(0)
    return extract_docx(source) if detect_kind(start, name) == "docx" else extract_pdf(source)


def _extract_page(data: bytes, kind: str, charset: str | None, url: str) -> str:
    if kind in ("text/html", "application/xhtml+xml"):
        return extract_html(data, charset)
    match detect_kind(data[:1024], url, kind):
        case "pdf":
            return extract_pdf(BytesIO(data))
        case "docx":
            return extract_docx(BytesIO(data))
    if kind.startswith("text/"):
        return decode(data, charset)
    raise ExtractionError(f"Pages of type {kind} are not supported.")
