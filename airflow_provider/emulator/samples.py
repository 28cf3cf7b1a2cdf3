"""Real documents to try things out with: `python -m airflow_provider.emulator.samples FOLDER`."""

from __future__ import annotations

import argparse
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from airflow_provider.emulator.documents import make_docx, make_page, make_pdf
from airflow_provider.emulator.sample_texts import make_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from airflow_provider.emulator.sample_texts import Words

LINES_PER_PAGE = 44
COLUMNS = 84
BROKEN = ("truncated.docx", "not-a-pdf.pdf", "empty.pdf")


@dataclass(frozen=True)
class Sample:
    """One document that was written: `kind` is pdf, docx, page or broken; `text` is what is in it to read."""

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

    `broken` ones cannot be read: in turn a truncated DOCX, a text file named .pdf, and an empty file.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    samples: list[Sample] = []

    def write(name: str, data: bytes, kind: str, text: str = "", count: int = 1) -> None:
        (target / name).write_bytes(data)
        samples.append(Sample(target / name, kind, text, count))

    for number in range(1, pdfs + 1):
        words = _words(seed, "pdf", number)
        sheets = paginate(words)
        write(_name(words, number, "pdf"), make_pdf(*sheets), "pdf", "\n\n".join(sheets), len(sheets))
    for number in range(1, docx + 1):
        words = _words(seed, "docx", number)
        data = make_docx(*words.paragraphs, headings=words.headings)
        write(_name(words, number, "docx"), data, "docx", "\n".join(words.paragraphs))
    for number in range(1, pages + 1):
        words = _words(seed, "page", number)
        data = make_page(words.title, *words.paragraphs, headings=words.headings)
        write(_name(words, number, "html"), data, "page", "\n".join((words.title, *words.paragraphs)))
    for number in range(1, broken + 1):
        name = BROKEN[(number - 1) % len(BROKEN)]
        write(f"broken-{number:03d}-{name}", _broken(name, _words(seed, "broken", number)), "broken")
    return samples


def _words(seed: int, kind: str, number: int) -> Words:
    # Of its own, so that a document is the same however many there are of other kinds.
    random = Random(f"{seed} {kind} {number}")  # noqa: S311 no secret is made of it
    return make_words(random, random.choice((1, 3, 5, 8, 12, 20, 30)))


def _name(words: Words, number: int, suffix: str) -> str:
    return f"{words.kind.lower().replace(' ', '-')}-{number:03d}.{suffix}"


def paginate(words: Words) -> list[str]:
    """Return the pages of a document as they are printed: broken into lines, with numbers at the foot."""
    lines: list[str] = []
    for paragraph in words.paragraphs:
        # Readers of PDF take a hyphen at the end of a line for one that joins a word.
        lines += textwrap.wrap(paragraph, COLUMNS, break_on_hyphens=False)
    sheets = [lines[start : start + LINES_PER_PAGE] for start in range(0, len(lines), LINES_PER_PAGE)]
    return ["\n".join((*sheet, f"Page {number} of {len(sheets)}")) for number, sheet in enumerate(sheets, 1)]


def _broken(name: str, words: Words) -> bytes:
    match name:
        case "truncated.docx":
            whole = make_docx(*words.paragraphs)
            return whole[: len(whole) * 2 // 3]
        case "not-a-pdf.pdf":
            return "\n".join(words.paragraphs).encode()
        case _:
            return b""


@contextmanager
def serve_pages(folder: str | PathLike[str], port: int = 0) -> Iterator[str]:
    """Serve the files of a folder on 127.0.0.1 until the end of the block; give the address."""
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
    """Write samples, and say what they are."""
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider.emulator.samples",
        description="Write sample documents into a folder.",
    )
    parser.add_argument("folder", metavar="FOLDER")
    for name, default, what in (
        ("pdfs", 6, "PDF documents"),
        ("docx", 4, "DOCX documents"),
        ("pages", 4, "web pages"),
        ("broken", 0, "documents that cannot be read"),
        ("seed", 0, "decides what is in them"),
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
