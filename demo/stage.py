"""What the example DAGs need: documents, web pages and a service, all on this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import serve_pages, write_samples

ROOT = Path(__file__).parents[1]
DAGS = ROOT / "example_dags"
NIGHTLY, NIGHTLY_FILE = "compliance_nightly_compliance", "nightly_compliance.py"
INGESTION = "compliance_nightly_ingestion"
MARK = ".made-by-the-demo"
CHANGED_SHARE = 20  # one of this many documents has another text in the second night
# What the sample documents say about each criterion, so that there are verdicts of all categories.
KEYWORDS = {
    "DORA-30-2-a": ("scope", "rated", "signed", "critical"),
    "DORA-30-2-b": ("two sites", "country", "every place"),
    "DORA-30-2-c": ("encrypted", "backups", "access is given", "available"),
    "DORA-30-2-f": ("serious incident", "first report", "near misses", "assistance"),
    "DORA-30-3-f": ("exit plan", "open format", "same price", "transition period"),
    "DORA-30-3-e": ("auditors", "visit", "written questions", "inspection"),
    "GDPR-28-3-a": ("documented instructions", "consent", "signed"),
    "GDPR-28-3-b": ("confidentiality", "access is given", "rights is reviewed"),
    "GDPR-32-1": ("encrypted", "intrusion", "weaknesses", "pseudonymisation"),
    "GDPR-28-2": ("subcontractors", "object", "consent"),
    "GDPR-28-3-g": ("deletes its copies", "open format", "confirms"),
    "GDPR-33-2": ("breach", "serious incident", "cause follows"),
}
AMENDED = "GDPR-28-2"  # the criterion that is stricter in the second night
AMENDMENT = " A register of all of them is kept and shown every year."
AMENDED_KEYWORDS = ("register of subcontractors", "names the country", "every year", "in writing")


@dataclass(frozen=True)
class Amounts:
    """How many documents there are; the broken ones are files and one dead link."""

    pdfs: int = 140
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
        """Where the texts of bulk ingestion go."""
        return self.folder / "texts"

    @property
    def nights(self) -> Path:
        """Where texts and verdicts of whole nights go."""
        return self.folder / "nights"

    def change(self) -> Stage:
        """Change some documents, add some, and amend a framework; return the stage of the second night."""
        changed = _change_documents(self.folder / "documents", self.expected)
        self.service.set_frameworks(_amend(self.service.frameworks()))
        return replace(self, expected=changed)

    def settings(self, reports: str = "", night_reports: str = "") -> dict[str, str]:
        """Return the environment in which every example DAG uses this service and this folder.

        :param reports: where a browser finds the texts
        :param night_reports: where a browser finds the nights
        """
        here = f"file://{self.folder}"
        pages = {f"file://{self.texts}/": reports, f"file://{self.nights}/": night_reports}
        files = [document.source for document in self.expected if document.kind == "pdf"]
        settings = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",  # instead of five minutes
            "AIRFLOW__COMPLIANCE__REPORT_URLS": json.dumps(pages) if reports else "",
            "AIRFLOW_CONN_COMPLIANCE_DEFAULT": self.service.connection_json,
            "COMPLIANCE_ASSESSED": f"{here}/assessed/",
            "COMPLIANCE_CONTRACTS": f"{here}/documents/*-00[1-3].pdf",
            "COMPLIANCE_DESTINATION": f"file://{self.texts}/",
            "COMPLIANCE_DOCUMENTS": f"{here}/documents/",
            "COMPLIANCE_FILE": "".join(files[:1]),
            "COMPLIANCE_JOBS": " ".join(self.jobs.values()),
            "COMPLIANCE_NIGHTS": f"file://{self.nights}/",
            "COMPLIANCE_PAGES": f"{here}/pages.txt",
            "COMPLIANCE_PAGE_TEXTS": f"{here}/pages/",
            "COMPLIANCE_REASSESSED": f"{here}/reassessed/",
            "COMPLIANCE_SOURCES": f"{here}/documents/ {here}/pages.txt",
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
        service.set_frameworks(_with_keywords(service.frameworks()))
        wanted = _write(folder, amounts, address)
        pages = [document.source for document in wanted if document.source.startswith(address)]
        (folder / "pages.txt").write_text("\n".join(("# One address per line.", *pages, "")))
        for name in ("nights", "texts"):
            _make_folder(folder / name)
        some = [document for document in wanted if document.kind == "page"][:3]
        done = {
            page.source: service.add_job(url=page.source, text=page.text or "", status="COMPLETED")
            for page in some
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
        Expected(f"file://{file.path}", file.kind, None if file.kind == "broken" else file.text)
        for file in files
    ]
    wanted += [Expected(f"{address}/{page.path.name}", page.kind, page.text) for page in pages]
    return wanted + [Expected(f"{address}/no-such-page.html", "broken", None)] * dead_links


def _change_documents(folder: Path, expected: list[Expected]) -> list[Expected]:
    """Give some PDF documents another text, and add others; return all that are expected now."""
    pdfs = [document for document in expected if document.kind == "pdf"]
    others = write_samples(folder / "new", pdfs=-(-len(pdfs) // CHANGED_SHARE) * 2, docx=0, pages=0, seed=1)
    replaced: dict[str, Expected] = {}
    for old, new in zip(pdfs[::CHANGED_SHARE], others, strict=False):
        new.path.replace(old.source.removeprefix("file://"))
        replaced[old.source] = replace(old, text=new.text)
    added = [Expected(f"file://{pdf.path}", "pdf", pdf.text) for pdf in others[len(replaced) :]]
    return [replaced.get(document.source, document) for document in expected] + added


def _amend(frameworks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make one criterion stricter, as the next version of a framework might."""
    for criterion in _criteria(frameworks):
        if criterion["codeName"] == AMENDED:
            criterion["description"] += AMENDMENT
            criterion["keywords"] += AMENDED_KEYWORDS
    return frameworks


def _with_keywords(frameworks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for criterion in _criteria(frameworks):
        criterion["keywords"] = list(KEYWORDS[criterion["codeName"]])
    return frameworks


def _criteria(frameworks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for framework in frameworks:
        yield from framework["criteria"]


def _clear(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise SystemExit(f"{folder} is not empty: use an empty folder.")
    shutil.rmtree(folder, ignore_errors=True)
    (_make_folder(folder) / MARK).touch()


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
