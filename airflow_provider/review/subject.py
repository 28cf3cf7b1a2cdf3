"""What a review is about: where its findings come from, and how document and framework are named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider.client.findings import Finding, parse_number
from airflow_provider.exceptions import ComplianceError, ComplianceInputError
from airflow_provider.params import as_json_or_file, optional, required
from airflow_provider.review.selection import Selection, add_context, select
from airflow_provider.storage.names import name_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider.hooks.compliance import ComplianceHook

MAX_TEXT_BYTES = 10 << 20  # of a text, to find passages in


class ReviewedFindingsMixin:
    """Reads the findings to review: of an assessment, of given results, or of a night."""

    if TYPE_CHECKING:  # of the operator
        assessment_id: str | int | None
        results: Any
        findings: Any
        only: str
        limit: int | str | None
        document: str | None
        framework: str | None
        text_uri: str | None
        source_uri: str | None
        threshold: float | str | None
        max_findings: int
        findings_of: Callable[[Any], list[Finding]]
        hook: ComplianceHook
        log: Any

    @property
    def topic(self) -> object:
        """The document and the framework."""
        return ", ".join(filter(None, [self._reviewed, optional(self.framework)]))

    @property
    def _reviewed(self) -> str:
        """The name of the document, or what is known instead."""
        source = str(optional(self.source_uri) or optional(self.text_uri) or "")
        if name := optional(self.document) or name_in(source):
            return str(name)
        if self.findings is not None:
            return "findings"
        if self.results is None:
            return f"assessment {self.assessment_id}"
        is_uri = isinstance(self.results, str) and not self.results.lstrip().startswith(("{", "["))
        return name_in(self.results) if is_uri else "results"

    def _select(self) -> Selection:
        """Return the findings to ask about."""
        if self.findings is None:
            return select(self._load_findings(), self._threshold(), self.max_findings)
        from airflow_provider.review.grouping import select_findings

        selection = select_findings(
            self.findings,
            only=self.only,
            limit=self.limit,
            threshold=self._threshold(),
            max_findings=self.max_findings,
        )
        night: Any = selection.asked
        self.source_uri = optional(self.source_uri) or _only(each.source for each in night)
        self.text_uri = optional(self.text_uri) or _only(each.text_path for each in night)
        return selection

    def _load_findings(self) -> list[Finding]:
        """Return the findings of an assessment, with the document and the framework of the parameters."""
        given, framework = optional(self.document) or optional(self.source_uri), optional(self.framework)
        return [
            replace(
                each,
                document=self._reviewed if given else each.document or self._reviewed,
                framework=framework or each.framework,
            )
            for each in self.findings_of(self._load_results())
        ]

    def _adopt_names(self, asked: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the document and the framework of all findings on the form, where no parameter gives them."""
        given = optional(self.document)
        self.document = given or _only(each["document"] for each in asked.values())
        self.framework = optional(self.framework) or _only(each["framework"] for each in asked.values())
        if asked and self.findings is not None and not self.document:
            criterion = _only(each["criterion"] for each in asked.values())
            documents = len({each["source"] for each in asked.values()})
            self.document = f"{criterion} in {documents} documents" if criterion else f"{documents} documents"

    def _add_contexts(self, selection: Selection) -> Selection:
        """Show passages in the context of the text, where it can be read."""
        uri = optional(self.text_uri)
        if not uri or uri.startswith(("http://", "https://")):
            return selection
        from airflow_provider.storage.texts import read_text

        try:
            text = read_text(uri, MAX_TEXT_BYTES)
        except ComplianceError as error:
            self.log.warning("Showing passages without their context: %s", error)
            return selection
        return replace(selection, asked=tuple(add_context(each, text) for each in selection.asked))

    def _load_results(self) -> Any:
        if self.results is not None:
            return as_json_or_file(self.results, "results of an assessment")
        assessment_id = required(self.assessment_id, "assessment_id")
        return self.hook.get_assessment_results(assessment_id)

    def _threshold(self) -> float | None:
        given = optional(self.threshold)
        if given is not None and (number := parse_number(given)) is None:
            raise ComplianceInputError(f"threshold must be a number, not {given!r}.")
        return None if given is None else number


def _only(values: Iterable[str]) -> str:
    """Return the value that all have in common; empty if there is none."""
    found = set(values)
    return found.pop() if len(found) == 1 else ""
