"""Golden documents: experts have decided on them, so the judge is asked about them every night.

Their cells are processed by the engine of the night, before all others, and are in its journal. They have
keys, results and a table of their own: the verdict on the same cell of the night is another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import (
    ComplianceAssessError,
    ComplianceError,
    ComplianceInputError,
    ComplianceSupersededError,
)
from airflow_provider.nights.assess.agreement import DRIFTED, JudgedCriterion, Row, compare_golden
from airflow_provider.nights.assess.cells import AssessedFramework, Cell, make_cells, make_key
from airflow_provider.nights.assess.findings import fold
from airflow_provider.nights.assess.inputs import AssessedDocument, read_rows
from airflow_provider.nights.assess.task import AssessTask, RunEngine, hash_text, resume_cells
from airflow_provider.nights.assess.verdicts import entries_of, to_utc
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, Steps, resume
from airflow_provider.nights.ingest.documents import Document, IngestSteps
from airflow_provider.nights.ingest.earlier import find_forgotten, resume_documents
from airflow_provider.nights.severity import KNOWN_CATEGORIES, normalize_category
from airflow_provider.redaction.addresses import redact_all
from airflow_provider.redaction.text import enumerate_few
from airflow_provider.runtime.event_loop import in_thread
from airflow_provider.runtime.non_retryable import as_non_retryable
from airflow_provider.runtime.params import required
from airflow_provider.storage import names
from airflow_provider.storage.locations import Location
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
    """What experts decided about golden documents, as far as the task can use it.

    :param expected: name and category of each criterion, by its folded name, by source and framework id
    :param addresses: of the documents, with all secrets, by source
    :param fields: of the documents, by source: what a payload can refer to
    :param manifest: where all this is, if it is in a store
    :param warnings: what can't be used
    """

    expected: Mapping[tuple[str, str], Mapping[str, tuple[str, str]]]
    addresses: Mapping[str, str]
    fields: Mapping[str, Row]
    manifest: Location | None
    warnings: list[str]


def read_golden(given: Any, task: AssessTask) -> GoldenSet:
    """Read golden documents: the URI of a manifest in JSON Lines, or its rows."""
    rows = [(row or {}, place) for row, place in read_rows(required(given, "golden"), "`golden`")]
    for row, place in rows:
        if missing := [name for name in REQUIRED if not str(row.get(name) or "").strip()]:
            raise ComplianceInputError(f"Add {', '.join(missing)} to the golden document in {place}.")
    addresses = redact_all(str(row["source"]) for row, _ in rows)
    named = {address: source for source, address in addresses.items()}
    ids = {name: one.id for one in task.frameworks.values() for name in (one.code_name, one.id)}
    expected: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    fields: dict[str, Row] = {}
    unknown: set[str] = set()
    for row, place in rows:
        _, framework, criterion, category = (str(row[name]).strip() for name in REQUIRED)
        source = named.get(str(row["source"]), str(row["source"]))
        if (category := normalize_category(category)) not in KNOWN_CATEGORIES:
            known = ", ".join(KNOWN_CATEGORIES)
            raise ComplianceInputError(f"Unknown category {category[:60]!r} in {place}: use one of {known}.")
        if not (key := ids.get(framework)):
            unknown.add(framework)
            continue
        decided = expected.setdefault((source, key), {})
        same = _find_names(task.frameworks[key], criterion)
        if any(decided.get(name, ("", category))[1] != category for name in same):
            raise ComplianceInputError(
                f"Remove one of two categories of {criterion[:60]!r} of the same document: see {place}."
            )
        decided[fold(criterion)] = criterion, category
        document = fields.setdefault(source, {**row, "source": source})
        hashes = {row.get("text_sha256") or None, document.get("text_sha256") or None} - {None}
        if len(hashes) > 1:
            raise ComplianceInputError(f"Keep only lines on one text_sha256 of this document: see {place}.")
        document["text_sha256"] = next(iter(hashes), None)
    if len(fields) > MAX_DOCUMENTS:
        raise ComplianceInputError(
            f"Choose at most {MAX_DOCUMENTS} golden documents, not {len(fields):,}: each costs every night."
        )
    lacking = {source: error for source in fields if (error := _find_lacking(task, fields[source]))}
    warnings = warn("This task does not assess frameworks of golden documents", sorted(unknown))
    warnings += warn("Golden documents lack fields of the payload", list(lacking.values()))
    usable = {key: decided for key, decided in expected.items() if key[0] not in lacking}
    is_stored = isinstance(given, str) and given.strip()[:1] not in '[{"'
    manifest = Location(given.strip()) if is_stored else None
    return GoldenSet(usable, addresses, fields, manifest, warnings)


def _find_names(framework: AssessedFramework, criterion: str) -> set[str]:
    """Return what a criterion is called, folded: as it is given, and by code and name as it is listed."""
    own = fold(criterion)
    listed = (set(map(fold, names)) for names in framework.criteria)
    return {own}.union(*(names for names in listed if own in names))


def _find_lacking(task: AssessTask, fields: Row) -> str:
    """Return which field of the payload a document does not have; empty if it has all."""
    try:
        task.template.check([{"uuid": "", "sha256": "", **fields}], ())
    except ComplianceInputError as error:
        return str(error)
    return ""


def warn(problem: str, parts: Collection[str]) -> list[str]:
    """Return a warning that names what a problem is about; none without any."""
    named = enumerate_few((part.removesuffix(".") for part in parts), 300)
    return [f"{problem}: {named}."] if parts else []


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
        self.manifest, self.warnings = given.manifest, given.warnings
        documents = resume_documents(given.addresses, {}, is_new_attempt=True, log=task.log)
        self._documents = {document.source: document for document in documents}
        self.texts: list[Cell] = []
        self.cells: list[Cell] = []
        self.rows: list[Row] = []
        self.judged: list[JudgedCriterion] = []

    async def plan(self) -> tuple[int, int]:
        """Return how many cells would be assessed, and how many documents would be processed before."""
        texts = self._find_texts(await in_thread(self._read_nights))
        cells = len(self._given.expected)
        return cells + min(MAX_REPEATS, cells), sum(not text.state.is_final for text in texts.values())

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
        own, *earlier = await in_thread(self._read_nights)
        known = {cell.key: cell for cell in map(_to_cell, own)} | dict(known)
        texts = self._find_texts([own, *earlier])
        found = {text.job_id for text in texts.values() if text.key not in known} - {""}
        forgotten = await find_forgotten(client, found, task.log) if found else set()
        resumed = resume(texts, known, texts.__getitem__, is_new_attempt=is_new_attempt)
        self.texts = [text.reset() if text.job_id in forgotten else text for text in resumed]
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
        self.warnings += warn("Golden documents could not be assessed", failed)
        self.rows = sorted(self._make_rows(), key=lambda row: str(row["source"]))
        self.judged = compare_golden(self.rows, earlier)
        self._react([judged for judged in self.judged if judged.state == DRIFTED])
        return []

    def _read_nights(self) -> list[list[Row]]:
        """Return rows: those that an earlier attempt has published, then of the newest earlier nights."""
        own, nights = self._task.nights.own, self._task.nights
        entries = entries_of(nights, self._task.checkpoint.account)
        earlier = filter(None, (list(entry.rows(TABLE)) for entry in entries))
        return [list(own.rows(TABLE)) if own else [], *islice(earlier, MAX_NIGHTS)]

    def _find_texts(self, nights: Iterable[list[Row]]) -> dict[str, Cell]:
        """Return the text of each document: of an earlier attempt or night, or tonight's; else to submit."""
        places = [
            *({row["source"]: (row["uuid"], row["text_sha256"]) for row in rows} for rows in nights),
            {document.source: (document.uuid, document.text_sha256) for document in self._task.documents},
        ]
        texts: dict[str, Cell] = {}
        for source in dict.fromkeys(source for source, _ in self._given.expected):
            text = Cell(f"{make_key(source, '')}{TEXT}", source=source, framework="text")
            wanted = self._given.fields[source]["text_sha256"]
            for uuid, sha256 in (place[source] for place in places if source in place):
                if sha256 and wanted in (None, sha256) and not text.job_id:
                    text = replace(text, job_id=uuid, text_sha256=sha256, state=COMPLETED)
            texts[text.key] = text
        return texts

    async def _process_texts(self, client: AsyncComplianceClient, run_engine: RunEngine) -> None:
        """Have new documents processed; that the service refuses all of them does not fail the night."""
        steps, checkpoint = TextSteps(client, self._documents), self._task.checkpoint
        try:
            await run_engine(client, self.texts, steps, checkpoint, may_defer=False, share=SHARE)
        except ComplianceError as error:
            if error.transient or isinstance(error, ComplianceSupersededError):
                raise
            self.warnings += warn("No golden document could be processed", [str(error)])

    def _with_text(self) -> Iterator[AssessedDocument]:
        """Yield the documents that can be assessed."""
        failed, others = [], []
        for text in self.texts:
            fields = self._given.fields[text.source]
            if text.state is FAILED:
                failed.append(f"{text.label}: {text.error}")
            elif text.state is COMPLETED and fields["text_sha256"] not in (None, text.text_sha256):
                others.append(text.source)
            elif text.state is COMPLETED:
                fields = {**fields, "uuid": text.job_id, "sha256": text.text_sha256}
                yield AssessedDocument(text.source, text.job_id, text.text_sha256, fields)
        self.warnings += warn("Golden documents could not be processed", failed)
        self.warnings += warn("Golden documents have another text than experts decided on", others)

    def _make_cells(self, documents: Mapping[str, AssessedDocument]) -> list[Cell]:
        """Return the cells, and those that are assessed twice: the same every night, of all frameworks."""
        task = self._task
        cells: dict[str, list[Cell]] = {}
        for source, key in self._given.expected:
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
        for cell in self.cells:
            if cell.state is not COMPLETED:
                continue
            decided = self._given.expected[cell.source, cell.framework_id]
            unanswered = dict(decided)
            for verdict in self._task.found[cell.key]:
                names_of = [fold(verdict[name]) for name in ("criterion", "title")]
                expected = [decided[name] for name in names_of if name in decided]
                for name in names_of:
                    unanswered.pop(name, None)
                yield {
                    "night": self._task.nights.night.at,
                    **{column: getattr(cell, column) for column in CELL_COLUMNS},
                    "assessment_id": cell.job_id,
                    "repeat": cell.key.endswith(REPEAT),
                    "criterion": verdict["criterion"],
                    "expert_category": expected[0][1] if expected else None,
                    "category": verdict["category"],
                    "before": None,
                    "state": "",
                }
            unknown |= dict.fromkeys(name for name, _ in unanswered.values())
        self.warnings += warn("The service does not know criteria of golden documents", unknown)

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
