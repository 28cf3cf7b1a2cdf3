"""The cells of an assessment: one for each document and framework."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.assess.inputs import AssessedDocument
from airflow_provider.nights.assess.payloads import PayloadTemplate
from airflow_provider.nights.bulk.items import FAILED, SKIPPED, Item
from airflow_provider.redaction.text import one_line
from airflow_provider.runtime.provenance import PROVENANCE_COLUMNS
from airflow_provider.waiting.frameworks.catalog import fingerprint, framework_key, rules_of

if TYPE_CHECKING:
    from airflow_provider.client.models import Framework

ASSESSMENT_COLUMNS = (
    "source", "uuid", "text_sha256", "framework_id", "framework", "framework_fingerprint", "payload_digest",
    "account", "cell", "assessment_id", "status", "error", "failure_kind", "results_path", "results_sha256",
    "findings", "unanswered", "submitted_at", "completed_at", "attempts", "failed_jobs", "carried_from",
    "change_reason", "text_bytes", "text_change", *PROVENANCE_COLUMNS,
)  # fmt: skip


IDENTITY = ("text_sha256", "framework_id", "framework_fingerprint", "payload_digest", "account")


@dataclass(frozen=True, eq=False)
class AssessedFramework:
    """A framework of the service.

    :param fingerprint: SHA-256 of its rules, as the service listed them when the task started
    :param fields: for references in a payload: the record of the service, without criteria
    :param criteria: code name and name of each criterion
    """

    id: str
    code_name: str
    fingerprint: str
    fields: Mapping[str, Any]
    criteria: tuple[tuple[str, str], ...] = ()
    rules: bytes = b""


@dataclass(slots=True)
class Cell(Item):
    """One document and one framework.

    :param uuid: the document's job at the service
    :param framework: its code name
    :param payload_digest: the digest of the payload as it is sent, except for fields of the job
    :param account: the account of the service that assesses it
    :param results_path: where the results are, as the service sent them
    :param carried_from: the run, time and assessment of an earlier verdict that is still valid
    :param findings: their number
    :param unanswered: how many criteria the service lists, but did not answer
    :param change_reason: what changed: `document`, `framework`, `both`, or only the `judge`
    :param text_bytes: the size of the text, if the manifest says so
    :param text_change: how much longer a new text is, as a share; negative if it is shorter
    """

    column_names: ClassVar[Mapping[str, str]] = {"job_id": "assessment_id", "state": "status"}

    source: str = ""
    uuid: str = ""
    text_sha256: str = ""
    framework_id: str = ""
    framework: str = ""
    framework_fingerprint: str = ""
    payload_digest: str = ""
    account: str = ""
    results_path: str = ""
    results_sha256: str = ""
    carried_from: dict[str, Any] | None = None
    findings: int = 0
    unanswered: int = 0
    change_reason: str = ""
    text_bytes: int | None = None
    text_change: float | None = None
    _digest: str = field(default="", init=False, repr=False, compare=False)  # once it was asked for

    @property
    def label(self) -> str:
        """Its document and framework, as logs and errors show them."""
        return one_line(f"{self.source} ({self.framework})")

    @property
    def input(self) -> Hashable:
        """The input; an unknown text is identified by its job."""
        return self.text_sha256 or self.uuid, self.framework_id, self.payload_digest

    @property
    def digest(self) -> str:
        """Identifies the input: equal cells have equal verdicts. Empty if the text is unknown."""
        if not self.text_sha256:
            return ""
        if not self._digest:
            self._digest = hashlib.sha256(json.dumps(self._identity).encode()).hexdigest()
        return self._digest

    def is_same_input(self, other: Cell) -> bool:
        """Return whether an earlier attempt assessed equal input, even if the text is unknown."""
        return (self.uuid, self._identity) == (other.uuid, other._identity)

    def find_cause(self, before: Mapping[str, Any]) -> str:
        """Return why it may have another verdict than an earlier row; empty if a text is unknown."""
        if not self.text_sha256 or not before["text_sha256"]:
            return ""
        has_new_text = self.text_sha256 != before["text_sha256"]
        if self.framework_fingerprint != before["framework_fingerprint"]:
            return "both" if has_new_text else "framework"
        return "document" if has_new_text else "judge"

    @property
    def _identity(self) -> list[str]:
        return [getattr(self, name) for name in IDENTITY]

    def reset(self) -> Self:
        """Return the same cell with everything still to do; only what has been tried is kept."""
        kept = ("attempts", "failed_jobs", "source", "uuid", "framework", "text_bytes", *IDENTITY)
        return type(self)(self.key, **{name: getattr(self, name) for name in kept})

    def row(self, writer: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return its row of `assessments.jsonl`; a carried verdict is as completed as a new one.

        :param writer: the provenance of the attempt that writes it
        """
        record = self.record() | self.provenance(writer or {})
        record |= {"status": "COMPLETED" if self.state is SKIPPED else str(self.state), "cell": self.digest}
        defaults = dict.fromkeys(("attempts", "findings", "unanswered"), 0)
        return {name: record.get(name, defaults.get(name)) for name in ASSESSMENT_COLUMNS}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Read a record of the journal or a row of `assessments.jsonl`."""
        cell = super(Cell, cls).from_record({"key": cell_key(record), **record})
        if cell.carried_from and cell.state is not FAILED:
            cell = replace(cell, state=SKIPPED)
        return cell


def cell_key(record: Mapping[str, Any]) -> str:
    """Return the key of the cell that a row is about."""
    return make_key(record.get("source", ""), record.get("framework_id", ""))


def make_key(source: str, framework_id: str) -> str:
    """Identify a cell in the task: by source and framework, in any version."""
    return f"{source}\n{framework_id}"


def make_cells(
    documents: Iterable[AssessedDocument],
    frameworks: Sequence[AssessedFramework],
    payload: PayloadTemplate,
    account: str = "",
) -> list[Cell]:
    """Return all cells, document by document."""
    return [
        Cell(
            make_key(document.source, framework.id),
            source=document.source,
            uuid=document.uuid,
            text_sha256=document.text_sha256,
            framework_id=framework.id,
            framework=framework.code_name,
            framework_fingerprint=framework.fingerprint,
            payload_digest=payload.digest(document.fields, framework.fields),
            account=account,
            text_bytes=size if isinstance(size := document.fields.get("bytes"), int) else None,
        )
        for document in documents
        for framework in frameworks
    ]


def select_frameworks(listed: Sequence[Framework], wanted: Sequence[str]) -> list[AssessedFramework]:
    """Return the frameworks with these ids or code names; all that the service lists if none is wanted.

    An id counts before a code name. Frameworks with the same code name are named with their ids.
    """
    frameworks = list(
        {(framework.id, framework.fingerprint): framework for framework in parse_frameworks(listed)}.values()
    )
    if not frameworks:
        error = ComplianceInputError(
            "The service lists no frameworks to assess against. Check the connection."
        )
        error.transient = True  # so it may look while it starts
        raise error
    by_id, by_code = _group(frameworks, "id"), _group(frameworks, "code_name")
    known = ", ".join(f"{framework.code_name} (id {framework.id})" for framework in frameworks)
    found = {name: by_id.get(name) or by_code.get(name) or [] for name in wanted or by_id}
    if unknown := [name for name, matches in found.items() if not matches]:
        raise ComplianceInputError(
            f"There is no framework {', '.join(map(repr, unknown))}. The service has: {known}."
        )
    if ambiguous := [name for name, matches in found.items() if len(matches) > 1]:
        raise ComplianceInputError(
            f"There is more than one framework {', '.join(map(repr, ambiguous))}: use ids. The service has: "
            f"{known}."
        )
    return [
        replace(framework, code_name=f"{framework.code_name} (id {framework.id})")
        if len(by_code[framework.code_name]) > 1
        else framework
        for framework in dict.fromkeys(matches[0] for matches in found.values())
    ]


def parse_frameworks(listed: Iterable[Framework]) -> list[AssessedFramework]:
    """Return the frameworks that the service lists."""
    return list(map(_parse_framework, listed))


def _parse_framework(record: Framework) -> AssessedFramework:
    key = framework_key(record)
    fields = record.model_dump(by_alias=True, exclude={"criteria"}, exclude_none=True)
    return AssessedFramework(
        record.id or key,
        record.code_name or record.name or record.id or key,
        fingerprint(record),
        fields,
        tuple(
            (criterion.code_name or criterion.name or "", criterion.name or "")
            for criterion in record.criteria
        ),
        rules_of(record),
    )


def _group(frameworks: Iterable[AssessedFramework], name: str) -> dict[str, list[AssessedFramework]]:
    groups: dict[str, list[AssessedFramework]] = {}
    for framework in frameworks:
        groups.setdefault(getattr(framework, name), []).append(framework)
    return groups
