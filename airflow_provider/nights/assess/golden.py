"""Golden documents: experts decided on them, so the service is asked about them every night.

They are ingested and assessed as all documents are, in a tree of their own below the root. This module
compares the verdicts with the decisions of experts, and with earlier nights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.assess.agreement import DRIFTED, JudgedGroup, Row, compare_golden
from airflow_provider.nights.assess.cells import Cell
from airflow_provider.nights.assess.findings import fold
from airflow_provider.nights.assess.inputs import read_rows
from airflow_provider.nights.assess.verdicts import entries_of, to_utc
from airflow_provider.nights.bulk.items import COMPLETED
from airflow_provider.nights.index.nights import EarlierNights
from airflow_provider.nights.ingest.sources import normalize
from airflow_provider.nights.severity import KNOWN_CATEGORIES, normalize_category
from airflow_provider.redaction.addresses import redact_all
from airflow_provider.redaction.text import enumerate_few
from airflow_provider.runtime.params import outputs_of, required
from airflow_provider.storage.jsonl import read_valid_rows
from airflow_provider.storage.locations import Location

TABLE = "golden"  # in the entry of a night
KIND = "judge"  # for entries in the index of nights
MAX_DOCUMENTS = 500
MAX_NIGHTS = 10  # that are searched for the verdict before
REQUIRED = ("source", "framework", "criterion", "category")
CELL_COLUMNS = (
    "source", "uuid", "text_sha256", "framework_id", "framework", "framework_fingerprint", "payload_digest",
    "account", "results_path", "results_sha256", "completed_at",
)  # fmt: skip


@dataclass
class GoldenDocument:
    """Expert decisions about a document.

    :param expected: name and category of each criterion, by the folded names of framework and criterion
    :param text_sha256: the SHA-256 of the text that they saw, if that is known
    """

    expected: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    text_sha256: str = ""


def read_golden(given: Any) -> dict[str, GoldenDocument]:
    """Read golden documents, by source: the URI of a manifest in JSON Lines, or its rows."""
    rows = [(row or {}, place) for row, place in read_rows(required(given, "golden"), "`golden`")]
    for row, place in rows:
        if missing := [name for name in REQUIRED if not str(row.get(name) or "").strip()]:
            raise ComplianceInputError(f"Add {', '.join(missing)} to the golden document in {place}.")
    addresses = redact_all(normalize(str(row["source"]).strip()) for row, _ in rows)
    named = {address: source for source, address in addresses.items()}
    found: dict[str, GoldenDocument] = {}
    for row, place in rows:
        _, framework, criterion, category = (str(row[name]).strip() for name in REQUIRED)
        document = found.setdefault(named[normalize(str(row["source"]).strip())], GoldenDocument())
        if (category := normalize_category(category)) not in KNOWN_CATEGORIES:
            known = ", ".join(KNOWN_CATEGORIES)
            raise ComplianceInputError(f"Unknown category {category[:60]!r} in {place}: use one of {known}.")
        key = fold(framework), fold(criterion)
        if document.expected.setdefault(key, (criterion, category))[1] != category:
            raise _two_categories(criterion, place)
        sha256 = str(row.get("text_sha256") or "").strip().lower()
        if sha256 and document.text_sha256 not in ("", sha256):
            raise ComplianceInputError(f"Keep only lines on one text_sha256 of this document: see {place}.")
        document.text_sha256 = sha256 or document.text_sha256
    if len(found) > MAX_DOCUMENTS:
        raise ComplianceInputError(
            f"Choose at most {MAX_DOCUMENTS} golden documents, not {len(found):,}: each costs every night."
        )
    return found


def _two_categories(criterion: str, place: str) -> ComplianceInputError:
    return ComplianceInputError(
        f"Remove one of two categories of {criterion[:60]!r} of the same document: see {place}."
    )


class GoldenNight:
    """The golden documents of a night.

    :param golden: what experts decided, by source
    :param assessed: the results of the assess tasks of golden documents
    :ivar rows: of `golden.jsonl`
    :ivar judged: their conclusions about the judge of each framework and each criterion
    :ivar warnings: what could not be used
    """

    def __init__(self, golden: Mapping[str, GoldenDocument], assessed: Any, nights: EarlierNights) -> None:
        self.warnings: list[str] = []
        self._golden, self._at = golden, nights.night.at
        self.rows = sorted(self._read(assessed), key=lambda row: str(row["source"]))
        earlier = (entry.rows(TABLE) for entry in entries_of(nights))
        self.judged: list[JudgedGroup] = compare_golden(
            self.rows, list(islice(filter(None, map(list, earlier)), MAX_NIGHTS))
        )

    @property
    def drifted(self) -> list[JudgedGroup]:
        """What drifted: of a framework, criteria rather than all of them together."""
        found = [group for group in self.judged if group.state == DRIFTED]
        named = {group.framework_id for group in found if group.criterion}
        return [group for group in found if group.criterion or group.framework_id not in named]

    def judged_since(self, framework_id: str) -> str:
        """Return when the first verdict of tonight was given: no document is assessed before."""
        return min(to_utc(row["completed_at"]) for row in self.rows if row["framework_id"] == framework_id)

    def _read(self, assessed: Any) -> Iterator[Row]:
        """Yield a row for each verdict on a golden document; warn of decisions without a verdict."""
        unknown: dict[str, None] = {}
        failed, others, frameworks, sources = [], [], set[str](), set[str]()
        for output in outputs_of(assessed, "assessed"):
            if not isinstance(output, Mapping) or "assessments" not in output:
                continue  # a task that left nothing
            cells = {}
            for record in read_valid_rows(Location(output["assessments"])):
                cell = Cell.from_record(record)
                sources.add(cell.source)
                frameworks |= {fold(cell.framework), fold(cell.framework_id)}
                document = self._golden.get(cell.source)
                if cell.state is not COMPLETED:
                    failed.append(f"{cell.label}: {cell.error}")
                elif document and document.text_sha256 not in ("", cell.text_sha256):
                    others.append(cell.source)
                elif document:
                    cells[cell.key] = cell, _decisions_on(document, cell)
            for verdict in read_valid_rows(Location(output["findings"])):
                key = Cell.from_record({**verdict, "status": COMPLETED}).key
                if key in cells:
                    cell, decided = cells[key]
                    yield self._make_row(cell, decided, verdict)
            unknown |= {name: None for _, left in cells.values() for name, _ in left.values()}
        self._warn("Golden documents could not be assessed", failed)
        self._warn("Golden documents were not assessed tonight", self._golden.keys() - sources)
        self._warn("Golden documents have another text than experts decided on", dict.fromkeys(others))
        named = {name for document in self._golden.values() for name, _ in document.expected}
        left_out = named - frameworks if sources else ()
        self._warn("Tonight does not assess frameworks of golden documents", left_out)
        self._warn("The service does not know criteria of golden documents", unknown)

    def _make_row(self, cell: Cell, decided: dict[str, tuple[str, str]], verdict: Row) -> Row:
        """Return the row of a verdict; its decisions are removed from `decided`."""
        names = dict.fromkeys(fold(verdict[name] or "") for name in ("criterion", "title"))
        found = [decided.pop(name) for name in names if name in decided]
        if len({category for _, category in found}) > 1:
            raise _two_categories(found[0][0], f"'{cell.source}'")
        return {
            "night": self._at,
            **{column: getattr(cell, column) for column in CELL_COLUMNS},
            "assessment_id": cell.job_id,
            "criterion": verdict["criterion"],
            "expert_category": found[0][1] if found else None,
            "category": verdict["category"],
        }

    def _warn(self, problem: str, parts: Collection[str]) -> None:
        if parts:
            named = enumerate_few((part.removesuffix(".") for part in sorted(parts)), 300)
            self.warnings.append(f"{problem}: {named}.")


def _decisions_on(document: GoldenDocument, cell: Cell) -> dict[str, tuple[str, str]]:
    """Return name and category of each criterion of one framework, by its folded name."""
    names = fold(cell.framework), fold(cell.framework_id)
    return {criterion: said for (name, criterion), said in document.expected.items() if name in names}
