"""What the example DAGs need: documents, web pages and a service, all on this machine."""

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
    """How many documents there are; the broken ones are files and one dead link."""

    pdfs: int = 150
    docx: int = 100
    pages: int = 45
    broken: int = 5

    @property
    def total(self) -> int:
        """All of them."""
        return self.pdfs + self.docx + self.pages + self.broken


@dataclass(frozen=True)
class Expected:
    """One document by its source in the manifest; `text` is None if it is unreadable."""

    source: str
    kind: str
    text: str | None


@dataclass(frozen=True)
class Stage:
    """Everything that the example DAGs work with.

    :param jobs: web pages with a job at the service already, and its uuid
    """

    folder: Path
    expected: list[Expected]
    service: Emulator
    jobs: dict[str, str]

    @property
    def texts(self) -> Path:
        """Where the texts go."""
        return self.folder / "texts"

    def settings(self, reports: str = "") -> dict[str, str]:
        """Return the environment in which every example DAG uses this service and this folder.

        :param reports: where a browser finds the texts
        """
        here = f"file://{self.folder}"
        files = [each.source for each in self.expected if each.kind == "pdf"]
        settings = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",  # instead of five minutes
            "AIRFLOW_CONN_COMPLIANCE_DEFAULT": self.service.connection_json,
            "COMPLIANCE_ASSESSED": f"{here}/assessed/",
            "COMPLIANCE_CONTRACTS": f"{here}/documents/*-00[1-3].pdf",
            "COMPLIANCE_DESTINATION": f"file://{self.texts}/",
            "COMPLIANCE_DOCUMENTS": f"{here}/documents/",
            "COMPLIANCE_FILE": "".join(files[:1]),
            "COMPLIANCE_JOBS": " ".join(self.jobs.values()),
            "COMPLIANCE_PAGES": f"{here}/pages.txt",
            "COMPLIANCE_PAGE_TEXTS": f"{here}/pages/",
            "COMPLIANCE_REASSESSED": f"{here}/reassessed/",
            "COMPLIANCE_REPORTS": reports,
            "COMPLIANCE_TEXTS": f"{here}/first/",
            "COMPLIANCE_WATCH_SECONDS": "5",
            "COMPLIANCE_WEB_PAGES": " ".join(self.jobs),
        }
        return {name: value for name, value in settings.items() if value}


@contextmanager
def staged(folder: Path, amounts: Amounts, jobs: str) -> Iterator[Stage]:
    """Write documents, serve pages, and run the service until the end of the block.

    :param folder: must be empty, or that of an earlier demo
    :param jobs: how the jobs of the service progress
    """
    folder = folder.absolute()
    _clear(folder)
    with (
        serve_pages(_make_folder(folder / "web")) as address,
        Emulator(jobs=jobs, latency=0.01) as service,
    ):
        wanted = _write(folder, amounts, address)
        pages = [each.source for each in wanted if each.source.startswith(address)]
        (folder / "pages.txt").write_text("\n".join(("# One address per line.", *pages, "")))
        _make_folder(folder / "texts")
        some = [each for each in wanted if each.kind == "page"][:3]
        done = {
            each.source: service.add_job(url=each.source, text=each.text or "", status="COMPLETED")
            for each in some
        }
        yield Stage(folder, wanted, service, done)


def _write(folder: Path, amounts: Amounts, address: str) -> list[Expected]:
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
        Expected(f"file://{each.path}", each.kind, None if each.kind == "broken" else each.text)
        for each in files
    ]
    wanted += [Expected(f"{address}/{each.path.name}", each.kind, each.text) for each in pages]
    return wanted + [Expected(f"{address}/no-such-page.html", "broken", None)] * dead_links


def _clear(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise SystemExit(f"{folder} is not empty: use an empty folder.")
    shutil.rmtree(folder, ignore_errors=True)
    (_make_folder(folder) / MARK).touch()


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
