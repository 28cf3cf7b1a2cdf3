"""Nights with evidence, as the tasks of a night leave them."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.holds import RECORD_VERSION
from airflow_provider.nights.evidence.manifests import Manifest
from airflow_provider.nights.evidence.tables import NightTable
from airflow_provider.storage.jsonl import TableFile, complete_once, to_lines
from airflow_provider.storage.locations import Location


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class NightWriter:
    """Writes nights below a root.

    :param documents: in each night
    :param size: of a text, in bytes
    """

    root: Location
    documents: int = 3
    size: int = 40
    name: str = "document"  # of a text
    texts: list[list[dict[str, Any]]] = field(default_factory=list)  # rows of each night

    def put(self, location: Location, data: bytes) -> dict[str, str]:
        if location.protocol == "file":
            path = Path(location.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        else:
            location.fs.pipe_file(location.path, data)
        below = location.uri.removeprefix(self.root.uri).lstrip("/")
        return {"uri": location.uri, "path": below, "sha256": sha256(data)}

    def ingest(self, day: int, *, skipped: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
        """Write texts; return the rows of the manifest.

        :param skipped: rows of an earlier night, which are unchanged
        """
        folder, rows = self.destination(day), [{**row, "status": "SKIPPED"} for row in skipped]
        for number in range(len(rows), self.documents):
            data = f"night {day}, {self.name} {number}. ".encode().ljust(self.size, b".")
            written = self.put(folder / f"{self.name}-{number}.txt", data)
            rows.append(
                {
                    "source": f"file:///in/document-{number}.pdf",
                    "status": "COMPLETED",
                    "path": written["uri"],
                    "bytes": len(data),
                    "sha256": written["sha256"],
                }
            )
        rows.append({"source": "file:///in/bad.pdf", "status": "FAILED", "path": None, "sha256": None})
        self.texts.append(rows)
        return rows

    def assess(self, day: int, *, carried: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
        """Write the results of one assessment; return the rows of the manifest."""
        rows = [{**row, "carried_from": {"run": "earlier"}} for row in carried]
        if not rows:
            written = self.put(self.destination(day) / "_assess/results/1.json", b'{"night": %d}' % day)
            rows.append(
                {
                    "source": "file:///in/document-0.pdf",
                    "framework": "DORA",
                    "status": "COMPLETED",
                    "results_path": written["uri"],
                    "results_sha256": written["sha256"],
                    "carried_from": None,
                }
            )
        return rows

    def destination(self, day: int) -> Location:
        return self.root / f"dt=2026-01-{day:02}"

    def close(
        self, day: int, tables: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], **record: Any
    ) -> ChainRecord:
        """Add a record."""
        folder, listed = self.destination(day), []
        for kind, rows in tables:
            file = TableFile(folder / f"_tables/{kind}.jsonl")  # a clear writes one of its own
            file.add(rows)
            complete_once([file])
            written = self.put(file.location, to_lines(rows))
            with tempfile.TemporaryDirectory() as temporary:
                manifest = Manifest(kind, written["uri"])
                table = NightTable.take(manifest, Path(temporary) / "copy", folder, self.root, lambda _: None)
                assert list(table.rows()) == rows
                table.seal(self.root)
            listed.append(table.describe(self.root))
        night = {
            "version": RECORD_VERSION,
            "night": f"2026-01-{day:02}T00:00:00+00:00",
            "run": f"nightly/2026-01-{day:02}",
            "root": self.root.uri,
            "destination": f"dt=2026-01-{day:02}",
            "replaces": None,
            "manifests": listed,
            "report": self.put(folder / f"_night/report-{len(self.texts)}.html", b"<p>%d</p>" % day),
            **record,
        }
        return Chain(self.root).append(lambda head: night)

    def night(self, day: int, **record: Any) -> ChainRecord:
        """Write a whole night."""
        cell = {"source": "file:///in/document-0.pdf", "framework": "DORA", "criterion": "DORA-28"}
        findings = [{**cell, "category": "MISSING"}]
        tables = [("ingest", self.ingest(day)), ("assess", self.assess(day)), ("findings", findings)]
        return self.close(day, tables, **record)


def rewrite(path: Path, **changes: Any) -> None:
    """Change fields of a JSON object."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, indent=1))
