"""What the nightly job needs: documents, web pages and a service, all on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import serve_pages, write_samples

ROOT = Path(__file__).parents[1]
DAGS = ROOT / "example_dags"
NIGHTLY = "compliance_nightly_ingestion"
MARK = ".made-by-the-demo"


@dataclass(frozen=True)
class Amounts:
    """How many documents there are; the broken ones are files, and one address that leads nowhere."""

    pdfs: int = 150
    docx: int = 100
    pages: int = 45
    broken: int = 5

    @property
    def total(self) -> int:
        """All of them."""
        return self.pdfs + self.docx + self.pages + self.broken


@dataclass(frozen=True)
class Wanted:
    """One document as the manifest names it; `text` is None where it cannot be read."""

    source: str
    kind: str
    text: str | None


@dataclass(frozen=True)
class Stage:
    """All that a run of the nightly job works with."""

    folder: Path
    wanted: list[Wanted]
    service: Emulator

    @property
    def texts(self) -> Path:
        """Where the texts go."""
        return self.folder / "texts"

    def settings(self, reports: str = "") -> dict[str, str]:
        """Return the environment that leads Airflow here.

        :param reports: where a browser finds the texts
        """
        return {
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",  # nobody wants to wait for five minutes here
            "AIRFLOW_CONN_COMPLIANCE_DEFAULT": self.service.connection_json,
            "COMPLIANCE_DOCUMENTS": f"file://{self.folder}/documents/",
            "COMPLIANCE_PAGES": f"file://{self.folder}/pages.txt",
            "COMPLIANCE_DESTINATION": f"file://{self.texts}/",
            "COMPLIANCE_REPORTS": reports,
        }


@contextmanager
def staged(folder: Path, amounts: Amounts, jobs: str) -> Iterator[Stage]:
    """Write documents, serve pages, and run the service until the end of the block.

    :param folder: is emptied, if it is of an earlier demo
    :param jobs: how the service's jobs advance
    """
    folder = folder.absolute()
    _clear(folder)
    with (
        serve_pages(_made(folder / "web")) as address,
        Emulator(jobs=jobs, latency=0.01) as service,
    ):
        wanted = _write(folder, amounts, address)
        pages = [each.source for each in wanted if each.source.startswith(address)]
        (folder / "pages.txt").write_text("\n".join(("# One address per line.", *pages, "")))
        _made(folder / "texts")
        yield Stage(folder, wanted, service)


def _write(folder: Path, amounts: Amounts, address: str) -> list[Wanted]:
    dead_links = min(amounts.broken, 1)
    files = write_samples(
        folder / "documents",
        pdfs=amounts.pdfs,
        docx=amounts.docx,
        pages=0,
        broken=amounts.broken - dead_links,
    )
    pages = write_samples(folder / "web", pdfs=0, docx=0, pages=amounts.pages)
    wanted = [
        Wanted(f"file://{each.path}", each.kind, None if each.kind == "broken" else each.text)
        for each in files
    ]
    wanted += [Wanted(f"{address}/{each.path.name}", each.kind, each.text) for each in pages]
    return wanted + [Wanted(f"{address}/no-such-page.html", "broken", None)] * dead_links


def _clear(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise SystemExit(f"{folder} has something else in it: give an empty folder.")
    shutil.rmtree(folder, ignore_errors=True)
    (_made(folder) / MARK).touch()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
