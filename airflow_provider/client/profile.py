"""Words and fields of a service that the contract does not have, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_camel

from airflow_provider.client.findings import find_part
from airflow_provider.client.models import (
    Assessment,
    ContentJob,
    Criterion,
    FeedbackCategory,
    Framework,
    JobStatus,
)
from airflow_provider.exceptions import ComplianceConfigError, ComplianceProtocolError

_RECORDS = (ContentJob, Assessment, Framework, Criterion)
# What services call the results of an assessment and the fields of a finding; only letters and digits count.
SYNONYMS = {
    "results": "results findings assessmentresponses responses items criteria data assessment",
    "assessmentResponseId": "assessmentresponseid responseid id",
    "criterionName": "criterionname title name criterion criterioncodename codename",
    "criterionCodeName": "criterioncodename codename criterioncode code criterion",
    "category": "category assessmentcategory rating verdict classification",
    "rationale": "rationale reasoning explanation justification reason text",
    "score": "score confidence confidencescore probability certainty",
    "document": "documentname filename document sourceurl source",
    "framework": "frameworkcodename frameworkname framework frameworkid frameworkids",
    "passage": "passage quote excerpt snippet citation",
    "context": "context surroundingtext paragraph",
}
# Fields that are read of jobs, assessments, frameworks, criteria, findings and errors.
FIELDS = (
    *dict.fromkeys(to_camel(name) for model in _RECORDS for name in model.model_fields if name != "raw"),
    *("assessmentId", *SYNONYMS, "message"),
)
WORDS: dict[str, type[JobStatus | FeedbackCategory]] = {"status": JobStatus, "category": FeedbackCategory}
LISTS = frozenset({"get_statuses", "list_frameworks", "list_criteria"})  # operations that return one


@dataclass(frozen=True, slots=True)
class Profile:
    """Maps answers of the service to the API specification; other fields stay as they are.

    :param fields: names in the API specification, each with the service's names; a dot leads into an object
    :param words: words of `status` and `category`, in lower case, each with the word of the API specification
    :param lists: fields in which the service wraps a list
    """

    fields: tuple[tuple[str, tuple[str, ...]], ...] = ()
    words: tuple[tuple[str, str, str], ...] = ()
    lists: tuple[str, ...] = ()

    @classmethod
    def parse(cls, profile: Any) -> Profile:
        """Parse the `profile` extra."""
        given = _object(profile, "", ("fields", *WORDS, "lists"))
        fields = _object(given.get("fields", {}), "fields", FIELDS)
        words = []
        for name, known in WORDS.items():
            for word, meaning in _object(given.get(name, {}), name).items():
                if meaning not in list(known):
                    raise _invalid(f"'{name}' maps '{word}' to {meaning!r}: use one of {', '.join(known)}")
                words.append((name, word.strip().casefold(), str(meaning)))
        return cls(
            tuple((name, _names(value, f"'{name}' of 'fields'")) for name, value in fields.items()),
            tuple(words),
            _names(given.get("lists", []), "'lists'"),
        )

    def __bool__(self) -> bool:
        return self != Profile()

    @property
    def finding_names(self) -> dict[str, list[str]]:
        """Names that each field of a finding may have; a mapped one as in the profile first."""
        mapped = dict(self.fields)
        return {name: [name.lower()] * (name in mapped) + names.split() for name, names in SYNONYMS.items()}

    def read(self, operation: str, value: Any) -> Any:
        """Return the JSON of an answer as the contract has it."""
        return self.convert(self.unwrap(operation, value))

    def unwrap(self, operation: str, value: Any) -> Any:
        """Return the list in an answer of an operation that returns one, as the service sent it."""
        if operation in LISTS and isinstance(value, dict):
            found = (look_up(value, name) for name in self.lists)
            items = next((items for items in found if isinstance(items, list)), None)
            if items is not None and (part := find_part(value, len(items))):
                raise ComplianceProtocolError(f"The answer is only a part of the list, as {part} says.")
            return value if items is None else items
        return value

    def convert(self, value: Any) -> Any:
        """Return JSON of the service with the fields and words of the API specification, at any depth.

        Only for JSON that the service sent: a word or field may mean something else in the API specification.
        """
        try:
            return self._convert(value, {}) if self else value
        except RecursionError:
            raise ComplianceProtocolError("The answer of the service is nested too deeply.") from None

    def _convert(self, value: Any, done: dict[int, Any]) -> Any:
        """Convert each list and object once, wherever it is needed; each is looked up as it was sent.

        :param done: converted objects, by the identity of the originals
        """
        if not isinstance(value, list | dict):
            return value
        if id(value) in done:
            return done[id(value)]
        if isinstance(value, list):
            return done.setdefault(id(value), [self._convert(item, done) for item in value])
        record = {name: self._convert(item, done) for name, item in value.items()}
        for name, sources in self.fields:
            found = [item for source in sources if (item := look_up(value, source)) is not None]
            if found:
                record[name] = self._convert(found[0], done)
        for name in WORDS:
            if isinstance(said := record.get(name), str | int | float):
                known = (name, str(said).strip().casefold())
                record[name] = next((meaning for *word, meaning in self.words if (*word,) == known), said)
        return done.setdefault(id(value), record)


def look_up(record: dict[str, Any], path: str) -> Any:
    """Return the value of a field, else the value at a path such as `data.id`; None if neither exists."""
    if path in record:
        return record[path]
    name, dot, rest = path.partition(".")
    inner = record.get(name)
    return look_up(inner, rest) if dot and isinstance(inner, dict) else None


def _object(value: Any, name: str, known: tuple[str, ...] = ()) -> dict[str, Any]:
    where = f"'{name}'" if name else "it"
    if not isinstance(value, dict):
        raise _invalid(f"{where} must be a JSON object, not {type(value).__name__}")
    if known and (unknown := sorted(set(map(str, value)) - set(known))):
        raise _invalid(f"{where} has unknown entries {', '.join(unknown)}; use some of {', '.join(known)}")
    return value


def _names(value: Any, where: str) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise _invalid(f"{where} must be a name or a list of names")
    return tuple(names)


def _invalid(problem: str) -> ComplianceConfigError:
    return ComplianceConfigError(f"The extra 'profile' is not valid: {problem}.")
