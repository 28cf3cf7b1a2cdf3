"""Sample documents in PDF, DOCX and HTML: `python -m airflow_provider.emulator.samples FOLDER`."""

from __future__ import annotations

import argparse
import html
import io
import sys
import textwrap
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"
CONTENT_TYPES = (
    f'{XML}<Types xmlns="{PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/>'
    f'<Override PartName="/word/document.xml" ContentType="{WORD}.document.main+xml"/></Types>'
)
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELATIONS = (
    f'{XML}<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="rId1" '
    f'Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>'
)
LINES_PER_PAGE = 44
LINE_CHARS = 84
BROKEN = ("truncated.docx", "not-a-pdf.pdf", "empty.pdf")

PROVIDERS = ("Alder Cloud", "Brightwater Hosting", "Cormorant Data", "Dunlin Payments", "Elmfield Software")
CUSTOMERS = ("Harbour Bank", "Meadow Insurance", "Northgate Leasing", "Old Mill Savings", "Quayside Pensions")
SERVICES = ("payment processing", "document archiving", "customer support", "data hosting", "card issuing")


def _read(name: str) -> dict[str, tuple[str, ...]]:
    text = files(__package__).joinpath("data", name).read_text(encoding="utf-8")
    blocks = (block.splitlines() for block in text.strip().split("\n\n"))
    return {name: tuple(sentences) for name, *sentences in blocks}


CLAUSES = _read("sample_clauses.txt")  # sentences by topic
OPENINGS = _read("sample_kinds.txt")  # the opening sentence of each kind of document


@dataclass(frozen=True)
class SampleText:
    """Title and paragraphs of a document."""

    kind: str
    title: str
    paragraphs: tuple[str, ...]


def make_text(random: Random, clauses: int) -> SampleText:
    """Return a text with a number of clauses; the same state of `random` gives the same text."""
    names = {
        "provider": random.choice(PROVIDERS),
        "customer": random.choice(CUSTOMERS),
        "service": random.choice(SERVICES),
    }
    kind = random.choice(list(OPENINGS))
    title = f"{kind}: {names['provider']} for {names['customer']}"
    paragraphs = [title, OPENINGS[kind][0].format(**names)]
    topics: list[str] = []
    while len(topics) < clauses:
        topics += random.sample(list(CLAUSES), len(CLAUSES))
    for number, topic in enumerate(topics[:clauses], 1):
        sentences = random.sample(CLAUSES[topic], random.randint(2, len(CLAUSES[topic])))
        filled = (_capitalize(sentence.format(**names, **_random_numbers(random))) for sentence in sentences)
        paragraphs += [f"{number}. {topic}", " ".join(filled)]
    return SampleText(kind, title, tuple(paragraphs))


def _random_numbers(random: Random) -> dict[str, object]:
    return {
        "kilometres": random.randrange(20, 400, 10),
        "months": random.choice((3, 6, 12, 18, 24)),
        "days": random.choice((5, 10, 14, 20, 30, 60, 90)),
        "hours": random.choice((2, 4, 8, 24, 48, 72)),
        "minutes": random.choice((5, 15, 30, 60)),
        "percent": random.choice(("99.5", "99.8", "99.9", "99.95")),
        "percent_small": random.choice((2, 3, 5)),
        "years": random.choice((5, 7, 10)),
    }


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


@dataclass(frozen=True)
class Sample:
    """A written document: `kind` is pdf, docx, page or broken; `text` is its content."""

    path: Path
    kind: str
    text: str = ""
    pages: int = 1


def write_samples(
    folder: str | PathLike[str],
    *,
    pdfs: int = 6,
    docx: int = 4,
    pages: int = 4,
    broken: int = 0,
    seed: int = 0,
) -> list[Sample]:
    """Write documents about outsourcing into a folder; the same seed gives the same bytes.

    `broken` ones can't be read: in turn a truncated DOCX, a text file named .pdf, and an empty file.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    samples: list[Sample] = []

    def write(name: str, data: bytes, kind: str, text: str = "", count: int = 1) -> None:
        (target / name).write_bytes(data)
        samples.append(Sample(target / name, kind, text, count))

    for number in range(1, pdfs + 1):
        text = _make_text(seed, "pdf", number)
        sheets = paginate(text)
        write(_name(text, number, "pdf"), make_pdf(*sheets), "pdf", "\n\n".join(sheets), len(sheets))
    for number in range(1, docx + 1):
        text = _make_text(seed, "docx", number)
        write(_name(text, number, "docx"), make_docx(*text.paragraphs), "docx", "\n".join(text.paragraphs))
    for number in range(1, pages + 1):
        text = _make_text(seed, "page", number)
        data = make_page(text.title, *text.paragraphs)
        write(_name(text, number, "html"), data, "page", "\n".join((text.title, *text.paragraphs)))
    for number in range(1, broken + 1):
        name = BROKEN[(number - 1) % len(BROKEN)]
        write(f"broken-{number:03d}-{name}", _make_broken(name, _make_text(seed, "broken", number)), "broken")
    return samples


def _make_text(seed: int, kind: str, number: int) -> SampleText:
    # Seeded per document, so that it does not depend on the number of others.
    random = Random(f"{seed} {kind} {number}")  # noqa: S311 not for secrets
    return make_text(random, random.choice((1, 3, 5, 8, 12, 20, 30)))


def _name(text: SampleText, number: int, suffix: str) -> str:
    return f"{text.kind.lower().replace(' ', '-')}-{number:03d}.{suffix}"


def paginate(text: SampleText) -> list[str]:
    """Return the pages of a document: wrapped lines, with page numbers at the bottom."""
    lines: list[str] = []
    for paragraph in text.paragraphs:
        # PDF readers remove a hyphen at the end of a line.
        lines += textwrap.wrap(paragraph, LINE_CHARS, break_on_hyphens=False)
    sheets = [lines[start : start + LINES_PER_PAGE] for start in range(0, len(lines), LINES_PER_PAGE)]
    return ["\n".join((*sheet, f"Page {number} of {len(sheets)}")) for number, sheet in enumerate(sheets, 1)]


def _make_broken(name: str, text: SampleText) -> bytes:
    match name:
        case "truncated.docx":
            whole = make_docx(*text.paragraphs)
            return whole[: len(whole) * 2 // 3]
        case "not-a-pdf.pdf":
            return "\n".join(text.paragraphs).encode()
        case _:
            return b""


def make_pdf(*pages: str) -> bytes:
    """Return a PDF with one page per argument; lines stay lines."""
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


def make_docx(*paragraphs: str, xml: str | None = None) -> bytes:
    """Return a DOCX with these paragraphs, or with this XML as its body."""
    body = "".join(map(_paragraph, paragraphs)) if xml is None else xml
    parts = {
        "[Content_Types].xml": CONTENT_TYPES,
        "_rels/.rels": RELATIONS,
        "word/document.xml": f"{XML}<w:document {W}><w:body>{body}</w:body></w:document>",
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in parts.items():
            # With a fixed time, so that the same text gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def _paragraph(text: str) -> str:
    # Word splits a sentence into runs anywhere.
    half = len(text) // 2
    runs = "".join(
        f'<w:r><w:t xml:space="preserve">{escape(part)}</w:t></w:r>' for part in (text[:half], text[half:])
    )
    return f"<w:p>{runs}</w:p>"


def make_page(title: str, *paragraphs: str) -> bytes:
    """Return a web page in UTF-8."""
    body = "\n".join(f"<p>{html.escape(text)}</p>" for text in paragraphs)
    head = f'<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n</head>'
    page = f'<html lang="en">\n{head}\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>'
    return f"<!DOCTYPE html>\n{page}\n".encode()


@contextmanager
def serve_pages(folder: str | PathLike[str], port: int = 0) -> Iterator[str]:
    """Serve the files of a folder on 127.0.0.1 until the end of the block; yield the URL."""
    import threading
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 named so by its base
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main(argv: Sequence[str] | None = None) -> int:
    """Write samples and list them."""
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider.emulator.samples",
        description="Write sample documents into a folder.",
    )
    parser.add_argument("folder", metavar="FOLDER")
    for name, default, what in (
        ("pdfs", 6, "PDF documents"),
        ("docx", 4, "DOCX documents"),
        ("pages", 4, "web pages"),
        ("broken", 0, "unreadable documents"),
        ("seed", 0, "selects their content"),
    ):
        parser.add_argument(
            f"--{name}", type=int, default=default, metavar="N", help=f"{what} (default: {default})"
        )
    options = vars(parser.parse_args(argv))
    try:
        samples = write_samples(**options)
    except OSError as error:
        print(error, file=sys.stderr)  # noqa: T201 this is a command
        return 1
    for sample in samples:
        pages = f"{sample.pages} page{'s' if sample.pages > 1 else ''}" if sample.kind == "pdf" else ""
        size = sample.path.stat().st_size
        print(f"{sample.kind:<7}{size:>8} bytes  {pages:<9} {sample.path}")  # noqa: T201 this is a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
