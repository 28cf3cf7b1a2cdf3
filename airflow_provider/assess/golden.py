"""Golden documents: experts have decided on them, so the judge is asked about them every night.

Their cells are processed by the engine of the night, before all others, and are in its journal. They have
keys, results and a table of their own: the verdict on the same cell of the night is another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.addresses import redact_all
from airflow_provider.assess.agreement import DRIFTED, JudgedCriterion, Row, compare_golden
from airflow_provider.assess.cells import Cell, make_cells, make_key
from airflow_provider.assess.findings import fold
from airflow_provider.assess.inputs import AssessedDocument, read_rows
from airflow_provider.assess.task import AssessTask, RunEngine, hash_text, resume_cells
from airflow_provider.assess.verdicts import entries_of, to_utc
from airflow_provider.bulk.items import COMPLETED, FAILED, Steps, resume
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import (
    ComplianceAssessError,
    ComplianceError,
    ComplianceInputError,
    ComplianceSupersededError,
)
from airflow_provider.hooks.non_retryable import as_non_retryable
from airflow_provider.ingest.documents import Document, IngestSteps
from airflow_provider.ingest.earlier import find_forgotten, resume_documents
from airflow_provider.params import required
from airflow_provider.severity import KNOWN_CATEGORIES, normalize_category
from airflow_provider.storage import names
from airflow_provider.storage.jsonl import read_valid_rows, twins
from airflow_provider.storage.locations import Location
from airflow_provider.text import enumerate_few
from airflow_provider.waiting.kinds import JOBS, JobKind
from airflow_provider.waiting.results import Record

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

TABLE = "golden"  # in the entry of a night
MAX_DOCUMENTS = 500
MAX_NIGHTS = 5  # that are compared with
SHARE = 0.25  # of the time that is left: the night goes first
MAX_REPEATS = 12  # cells that are assessed twice in a night
REQUIRED = ("source", "framework", "criterion", "category")
GOLDEN, REPEAT, TEXT = "\ngolden", "\nrepeat", "\ntext"  # end the keys of items
REASSESS, FAIL, WARN = "reassess", "fail", "warn"
CELL_COLUMNS = (
    "source", "uuid", "text_sha256", "framework_id", "framework", "framework_fingerprint", "payload_digest",
    "account", "results_path", "results_sha256", "completed_at",
)  # fmt: skip


@dataclass(frozen=True)
class GoldenSet:
    """What experts decided about golden documents.

    :param expected: the category of each criterion, by source and framework
    :param addresses: of the documents, with all secrets, by source
    :param fields: of the documents, by source: what a payload can refer to
    :param manifest: where all this is, if it is in a store
    """

    expected: Mapping[tuple[str, str], Mapping[str, str]]
    addresses: Mapping[str, str]
    fields: Mapping[str, Row]
    manifest: Location | None


def read_golden(given: Any) -> GoldenSet:
    """Read golden documents: the URI of a manifest in JSON Lines, or its rows."""
    found = read_rows(required(given, "golden"))
    rows = [(row, "`golden`" if place == "documents" else place) for row, place in found]
    for row, place in rows:
        if missing := [name for name in REQUIRED if not str(row.get(name) or "").strip()]:
            raise ComplianceInputError(f"Add {', '.join(missing)} to the golden document in {place}.")
    addresses = redact_all(str(row["source"]) for row, _ in rows)
    named = {address: source for source, address in addresses.items()}
    expected: dict[tuple[str, str], dict[str, str]] = {}
    fields: dict[str, Row] = {}
    for row, place in rows:
        _, framework, criterion, category = (str(row[name]).strip() for name in REQUIRED)
        source = named.get(str(row["source"]), str(row["source"]))
        if (category := normalize_category(category)) not in KNOWN_CATEGORIES:
            known = ", ".join(KNOWN_CATEGORIES)
            raise ComplianceInputError(f"Unknown category {category[:60]!r} in {place}: use one of {known}.")
        if expected.setdefault((source, framework), {}).setdefault(criterion, category) != category:
            raise ComplianceInputError(
                f"Remove one of two categories of {criterion[:60]!r} of the same document: see {place}."
            )
        document = fields.setdefault(source, {**row, "source": source})
        texts = {row.get("text_sha256") or None, document.get("text_sha256") or None} - {None}
        if len(texts) > 1:
            raise ComplianceInputError(f"Keep only lines on one text_sha256 of this document: see {place}.")
        document["text_sha256"] = next(iter(texts), None)
    if len(fields) > MAX_DOCUMENTS:
        raise ComplianceInputError(
            f"Choose at most {MAX_DOCUMENTS} golden documents, not {len(fields):,}: each costs every night."
        )
    is_stored = isinstance(given, str) and given.strip()[:1] not in '[{"'
    return GoldenSet(expected, addresses, fields, Location(given.strip()) if is_stored else None)


@dataclass
class TextSteps(Steps[Cell]):
    """Have the service process golden documents, which is done once, and hash their texts."""

    kind: ClassVar[JobKind] = JOBS
    noun: ClassVar[str] = "golden documents"

    client: AsyncComplianceClient
    documents: Mapping[str, Document]

    async def submit(self, item: Cell) -> Record:
        """Submit a page or a file."""
        document = self.documents[item.source]
        if document.error:
            raise ComplianceInputError(document.error)
        return await IngestSteps(self.client, lambda _: Location("")).submit(document)

    async def fetch(self, item: Cell) -> None:
        """Hash its text."""
        item.text_sha256 = await hash_text(self.client, item.job_id)


class GoldenTask:
    """The golden documents of a night; made in the task's own thread.

    :param on_drift: see `ComplianceAssessOperator`
    :ivar texts: items whose job is that of the document
    :ivar rows: of `golden.jsonl`
    :ivar judged: what they say about the judge of each criterion
    :ivar warnings: what could not be used
    """

    def __init__(self, task: AssessTask, given: GoldenSet, on_drift: str) -> None:
        self._task, self._given, self._on_drift = task, given, on_drift
        self.manifest = given.manifest
        documents = resume_documents(given.addresses, {}, is_new_attempt=True, log=task.log)
        self._documents = {document.source: document for document in documents}
        self.texts: list[Cell] = []
        self.cells: list[Cell] = []
        self.rows: list[Row] = []
        self.judged: list[JudgedCriterion] = []
        self.warnings: list[str] = []
        ids = {name: one.id for one in task.frameworks.values() for name in (one.code_name, one.id)}
        self._expected: dict[tuple[str, str], dict[str, str]] = {}
        self._names: dict[str, str] = {}  # of criteria, as given
        lacking = {source: error for source in given.fields if (error := self._find_lacking(source))}
        for (source, name), criteria in given.expected.items():
            known = self._expected.setdefault((source, ids.get(name, "")), {})
            for criterion, category in criteria.items():
                self._names[fold(criterion)] = criterion
                if known.setdefault(fold(criterion), category) != category:
                    raise ComplianceInputError(
                        f"Remove one of two categories of {criterion[:60]!r} of '{source}' from `golden`."
                    )
        for source, key in list(self._expected):
            if not key or source in lacking:
                del self._expected[source, key]
        unknown = {name for _, name in given.expected} - ids.keys()
        self._warn("This task does not assess frameworks of golden documents", sorted(unknown))
        self._warn("Golden documents lack fields of the payload", list(lacking.values()))

    def _find_lacking(self, source: str) -> str:
        """Return which field of the payload a document does not have; empty if it has all."""
        try:
            self._task.template.check([{"uuid": "", "sha256": "", **self._given.fields[source]}], ())
        except ComplianceInputError as error:
            return str(error)
        return ""

    @property
    def total(self) -> int:
        """How many cells are assessed every night."""
        return len(self._expected) + min(MAX_REPEATS, len(self._expected))

    def _warn(self, problem: str, parts: Collection[str]) -> None:
        named = enumerate_few((part.removesuffix(".") for part in parts), 300)
        self.warnings += [f"{problem}: {named}."] if parts else []

    async def assess(
        self,
        client: AsyncComplianceClient,
        known: Mapping[str, Cell],
        run_engine: RunEngine,
        *,
        is_new_attempt: bool,
    ) -> list[str]:
        """Assess golden documents, then decide whether the judge has drifted; return what is in flight.

        :param known: items of earlier attempts
        """
        task = self._task
        earlier, own = await in_thread(self._read_earlier), await in_thread(self._read_own)
        known = {cell.key: cell for cell in map(_to_cell, own)} | dict(known)
        await self._resume_texts(client, known, [own, *earlier], is_new_attempt=is_new_attempt)
        if not all(text.state.is_final for text in self.texts):
            await self._process_texts(client, run_engine)
        documents = {document.source: document for document in self._with_text()}
        self.cells, outdated = resume_cells(self._make_cells(documents), known, is_new_attempt=is_new_attempt)
        await task.read_known(self.cells)
        if not all(cell.state.is_final for cell in self.cells):
            made = task.make_steps(client, documents.values())
            if in_flight := await run_engine(
                client, self.cells, made, task.checkpoint, outdated, share=SHARE
            ):
                return in_flight
        failed = [f"{cell.label}: {cell.error}" for cell in self.cells if cell.state is FAILED]
        self._warn("Golden documents could not be assessed", failed)
        self.rows = sorted(self._make_rows(), key=lambda row: str(row["source"]))
        self.judged = compare_golden(self.rows, earlier)
        self._react([judged for judged in self.judged if judged.state == DRIFTED])
        return []

    def _read_earlier(self) -> list[list[Row]]:
        """Return the rows of the newest earlier nights of this task that have some."""
        entries = entries_of(self._task.nights, self._task.checkpoint.account)
        return list(islice(filter(None, (list(entry.rows(TABLE)) for entry in entries)), MAX_NIGHTS))

    def _read_own(self) -> list[Row]:
        """Return the rows that an earlier attempt has written: they outlive the journal."""
        table = self._task.checkpoint.output_folder / f"{TABLE}.jsonl"
        rows = (row for location in twins(table) for row in read_valid_rows(location))
        return [row for row in rows if row.keys() >= {*CELL_COLUMNS, "repeat"}]

    async def _resume_texts(
        self,
        client: AsyncComplianceClient,
        known: Mapping[str, Cell],
        earlier: list[list[Row]],
        *,
        is_new_attempt: bool,
    ) -> None:
        """Find the text of each document: of an earlier attempt or night, or tonight's; else submit it."""
        places = [
            *({row["source"]: (row["uuid"], row["text_sha256"]) for row in rows} for rows in earlier),
            {document.source: (document.uuid, document.text_sha256) for document in self._task.documents},
        ]
        texts: dict[str, Cell] = {}
        for source in dict.fromkeys(source for source, _ in self._expected):
            text = Cell(f"{make_key(source, '')}{TEXT}", source=source, framework="text")
            wanted = self._given.fields[source].get("text_sha256")
            for uuid, sha256 in (place[source] for place in places if source in place):
                if sha256 and wanted in (None, sha256) and not text.job_id:
                    text = replace(text, job_id=uuid, text_sha256=sha256, state=COMPLETED)
            texts[text.key] = text
        found = {text.job_id for text in texts.values() if text.key not in known} - {""}
        forgotten = await find_forgotten(client, found, self._task.log) if found else set()
        self.texts = resume(texts, known, texts.__getitem__, is_new_attempt=is_new_attempt)
        for number, text in enumerate(self.texts):
            if text.job_id in forgotten:
                self.texts[number] = text.reset()
            elif text.job_id in found:
                self._task.checkpoint.append(text)  # the next attempt uses the same one

    async def _process_texts(self, client: AsyncComplianceClient, run_engine: RunEngine) -> None:
        """Have new documents processed; that the service refuses all of them does not fail the night."""
        steps, checkpoint = TextSteps(client, self._documents), self._task.checkpoint
        try:
            await run_engine(client, self.texts, steps, checkpoint, may_defer=False, share=SHARE)
        except ComplianceError as error:
            if error.transient or isinstance(error, ComplianceSupersededError):
                raise
            self._warn("No golden document could be processed", [str(error)])

    def _with_text(self) -> Iterator[AssessedDocument]:
        """Yield the documents that can be assessed."""
        self._warn(
            "Golden documents could not be processed",
            [f"{text.label}: {text.error}" for text in self.texts if text.state is FAILED],
        )
        others = []
        for text in self.texts:
            fields = self._given.fields[text.source]
            if text.state is COMPLETED and fields.get("text_sha256") not in (None, text.text_sha256):
                others.append(text.source)
            elif text.state is COMPLETED:
                fields = {**fields, "uuid": text.job_id, "sha256": text.text_sha256}
                yield AssessedDocument(text.source, text.job_id, text.text_sha256, fields)
        self._warn("Golden documents have another text than experts decided on", others)

    def _make_cells(self, documents: Mapping[str, AssessedDocument]) -> list[Cell]:
        """Return the cells, and those that are assessed twice: the same every night, of all frameworks."""
        task = self._task
        cells: dict[str, list[Cell]] = {}
        for source, key in self._expected:
            if document := documents.get(source):
                made = make_cells([document], [task.frameworks[key]], task.template, task.checkpoint.account)
                cells.setdefault(key, []).extend(made)
        spread = (sorted(some, key=lambda cell: names.digest(cell.key)) for some in cells.values())
        twice = [cell for some in zip_longest(*spread) for cell in some if cell][:MAX_REPEATS]
        return [
            *(replace(cell, key=cell.key + GOLDEN) for cell in chain.from_iterable(cells.values())),
            *(replace(cell, key=cell.key + REPEAT) for cell in twice),
        ]

    def _make_rows(self) -> Iterator[Row]:
        """Yield a row for each verdict; name criteria of experts that have none."""
        unknown: dict[str, None] = {}
        twice: dict[str, None] = {}
        for cell in self.cells:
            if cell.state is not COMPLETED:
                continue
            categories = self._expected[cell.source, cell.framework_id]
            unanswered = dict(categories)
            for verdict in self._task.found[cell.key]:
                texts = {fold(verdict[name]) for name in ("criterion", "title")} & categories.keys()
                expected = {categories[text] for text in texts}
                for text in texts:
                    unanswered.pop(text, None)
                if len(expected) > 1:
                    twice[verdict["criterion"]] = None
                yield {
                    "night": self._task.nights.night.at,
                    **{column: getattr(cell, column) for column in CELL_COLUMNS},
                    "assessment_id": cell.job_id,
                    "repeat": cell.key.endswith(REPEAT),
                    "criterion": verdict["criterion"],
                    "expert_category": expected.pop() if len(expected) == 1 else None,
                    "category": verdict["category"],
                    "before": None,
                    "state": "",
                }
            unknown |= dict.fromkeys(map(self._names.__getitem__, unanswered))
        self._warn("The service does not know criteria of golden documents", unknown)
        self._warn("Golden documents have two categories, by code and by title, of", twice)

    def _react(self, drifted: list[JudgedCriterion]) -> None:
        """Say what has drifted, and do what follows from that."""
        if not drifted:
            return
        found = f"The judge has drifted: {enumerate_few(map(str, drifted), 400)}."
        if self._on_drift == FAIL:
            error = ComplianceAssessError(
                f"{found} Ask who runs the service what has changed. Nothing was published: set on_drift to "
                f"'{REASSESS}' or '{WARN}', then clear this task."
            )
            raise as_non_retryable(error)
        if self._on_drift == REASSESS:
            for framework_id in {judged.framework_id for judged in drifted}:
                ended = [
                    cell for cell in self.cells if cell.framework_id == framework_id and cell.completed_at
                ]
                self._task.judged_since[framework_id] = min(to_utc(cell.completed_at) for cell in ended)
            frameworks = dict.fromkeys(judged.framework for judged in drifted)
            found += f" No earlier verdict on {enumerate_few(frameworks)} is carried forward."
        self._task.log.warning("%s", found)


def _to_cell(row: Row) -> Cell:
    """Return the cell that a row of an earlier attempt is about."""
    key = make_key(row["source"], row["framework_id"]) + (REPEAT if row["repeat"] else GOLDEN)
    return Cell.from_record({**row, "key": key, "status": COMPLETED})
