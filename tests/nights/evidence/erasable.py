"""Nights with everything that tasks leave about documents, to erase some of them."""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest

from airflow_provider.nights.assess.findings import FINDING_COLUMNS
from airflow_provider.nights.assess.tables import CsvTables
from airflow_provider.nights.evidence.erasing import Erasure
from airflow_provider.nights.evidence.jobs import Job
from airflow_provider.nights.evidence.verifier import Check, Folder, Verifier
from airflow_provider.nights.index.nights import EarlierNights, Night, Table, TaskKey
from airflow_provider.nights.reports.assess import VerdictStats, render_verdicts
from airflow_provider.nights.reports.ingest import Run
from airflow_provider.storage import names
from airflow_provider.storage.jsonl import to_lines
from airflow_provider.storage.locations import Location
from tests.support.nights import Nights, cell, decision, document, finding

ANNA, BERT = "file:///docs/Anna & Söhne <1>.pdf", "file:///docs/bert.pdf"
SECRET = {ANNA: "Anna has terminated her contract", BERT: "Bert is content"}
log = logging.getLogger(__name__)


class KilledError(BaseException):
    """The process has ended."""


def read_plainly(path: Path) -> str:
    """Return what is in a file, compressed or not; of a Parquet file the rows, too."""
    data = path.read_bytes()
    if data.startswith(b"PAR1"):
        import pyarrow.parquet as pq

        rows = pq.read_table(path, partitioning=None).to_pylist()
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows) + data
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")


class Tree:
    """Nights below a root on this machine, with tables, texts, results, reports, and work in progress."""

    def __init__(self, nights: Nights) -> None:
        self.nights = nights
        self.root = Location(nights.base)
        self.path = Path(self.root.path)
        self.jobs: list[Job] = []  # that were deleted at the service
        self.refused: set[str] = set()  # ids of those that it does not delete

    def write_night(self, day: int, *sources: str, same_results: bool = False) -> dict[str, Any]:
        """Write what the tasks of a night leave; return the parameters of the task that closes it."""
        base = self.root / f"dt=2026-03-{day:02}"
        documents, cells, findings = [], [], []
        for source in sources:
            name = hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:12]
            job = hashlib.sha256(f"job {name}".encode()).hexdigest()[:12]
            stem = names.safe(Path(source).stem)[:40]
            text = self._put(base / f"{stem}-{name}.txt", SECRET[source].encode())
            body = b"{}" if same_results else json.dumps({"rationale": SECRET[source]}).encode()
            results = self._put(base / f"results/DORA-{'same' if same_results else name}.json", body)
            documents.append(document(source, uuid=f"u-{job}", path=text[0], sha256=text[1]))
            cells.append(
                cell(
                    source,
                    framework_id="7",
                    cell=name,
                    assessment_id="a-same" if same_results else f"a-{job}",
                    results_path=results[0],
                    results_sha256=results[1],
                    findings=1,
                )
            )
            findings.append(finding(source, "C-1", rationale=SECRET[source], uuid=f"u-{job}"))
        tables = {
            "manifest": (base / "_ingest/d/run/ingest/manifest.jsonl", documents),
            "assessments": (base / "_assess/d/run/assess/assessments.jsonl", cells),
            "findings": (base / "_assess/d/run/assess/findings.jsonl.gz", findings),
            "decisions": (base / "_assess/d/run/assess/decisions/review.jsonl", map(decision, sources)),
        }
        contents = {name: to_lines(rows) for name, (_, rows) in tables.items()}
        contents["findings"] = gzip.compress(contents["findings"], mtime=0)
        for name, (location, _) in tables.items():
            self._put(location, contents[name])
        for kind, named in (("ingest", ["manifest"]), ("assess", ["assessments", "findings"])):
            published = {name: Table.of(tables[name][0], contents[name]) for name in named}
            keys = sources if kind == "ingest" else [f"{source}\n7" for source in sources]
            night = Night(f"2026-03-{day:02}T00:00:00+00:00", f"d/run-{day}")
            EarlierNights(self.root, kind, night, TaskKey("d", kind), "account").publish(published, keys)
        self._write_derived(base, day, sources, findings)
        return {
            "ingested": {"manifest": tables["manifest"][0].uri, "completed": len(sources)},
            "assessed": {name: tables[name][0].uri for name in ("assessments", "findings")},
            "reviewed": tables["decisions"][0].uri,
        }

    def close(self, day: int, *sources: str, **options: Any) -> dict[str, Any]:
        """Write and close a night."""
        return self.nights.close(day, **self.write_night(day, *sources, **options))

    def _put(self, location: Location, content: bytes) -> tuple[str, str]:
        path = Path(location.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return location.uri, hashlib.sha256(content).hexdigest()

    def _write_derived(
        self, base: Location, day: int, sources: Collection[str], findings: list[dict[str, Any]]
    ) -> None:
        tables = CsvTables(base / "_assess/d/run/assess/csv")
        tables.add(dict.fromkeys(FINDING_COLUMNS) | row for row in findings)
        tables.publish()
        self._put(base / "_work/shards/0.jsonl", to_lines({"source": source} for source in sources))
        for number, source in enumerate(sources):
            self._put(base / f"_work/state/{number}.json", json.dumps({"shown": [source]}).encode())
        stats = VerdictStats()
        for row in findings:
            changed = {**row, "changed_from": "MISSING", "title": "A title"}
            stats.add({**cell(row["source"]), "framework_id": "7"}, [changed], ())
        page = render_verdicts(
            stats,
            Run(dag_id="d", task_id="assess", run_id="run"),
            night=f"2026-03-{day:02}",
            last_night="2026-02-01",
            without_text=list(sources),
            files={},
        )
        self._put(base / "_assess/d/run/assess/report.html", page.encode())

    def erasure(self, *sources: str, **options: Any) -> Erasure:
        return Erasure(self.root, sources, "A request", "the officer", log, **options)

    def erase(self, *sources: str, **options: Any) -> Any:
        return self.erasure(*sources, **options).run(self)

    def begin(self, *sources: str, **options: Any) -> None:
        """Begin an erasure that is killed."""

        def kill() -> None:
            raise KilledError

        with pytest.raises(KilledError):
            self.erase_during(kill, *sources, **options)

    def erase_during(self, work: Callable[[], None], *sources: str, **options: Any) -> Any:
        """Erase documents, and do something else before reports and tables are written."""
        render, is_first = Erasure._render_again, [True]

        def hook(*arguments: Any) -> Any:
            if is_first:
                is_first.clear()
                work()
            return render(*arguments)

        with mock.patch.object(Erasure, "_render_again", hook):
            return self.erase(*sources, **options)

    def check(self) -> None:
        """Do as a service that answers."""

    def delete(self, jobs: Collection[Job]) -> list[Job]:
        """Do as a service that deletes all jobs but those that it refuses to."""
        self.jobs += [job for job in jobs if job[1] not in self.refused]
        return [job for job in jobs if job[1] in self.refused]

    def verify(self) -> list[Check]:
        return list(Verifier(Folder(self.root.path)).run())

    def statuses(self) -> str:
        """Return what becomes of all records but those of jobs at the service."""
        is_about_jobs = {"kind": "erased", "rows": None}
        return " ".join(
            check.status
            for check in self.verify()
            if {name: check.record.get(name) for name in is_about_jobs} != is_about_jobs
        )

    def find_traces(self, source: str) -> list[str]:
        """Return the objects that name a document, in their names too, or have its text."""
        name = source.rpartition("/")[2]
        stem = Path(name).stem
        words = {stem, quote(stem), quote(stem, safe=""), html.escape(stem), json.dumps(stem)[1:-1]}
        words |= {word for text in (name, SECRET[source]) for word in (text, html.escape(text), quote(text))}
        return [
            str(path.relative_to(self.path))
            for path in self._files()
            if any(word in f"{path} {read_plainly(path)}" for word in words)
        ]

    def _files(self) -> Iterator[Path]:
        return (path for path in sorted(self.path.rglob("*")) if path.is_file())
