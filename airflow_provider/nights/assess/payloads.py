"""The payload of each assessment: a JSON template with fields of the document and of the framework."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.ingest.documents import MANIFEST_COLUMNS

DEFAULT_PAYLOAD: dict[str, Any] = {
    "contentUuid": "{document[uuid]}",
    "framework": "{framework[codeName]}",
}
PLACEHOLDER = re.compile(r"\{(document|framework)\[([^\[\]{}]+)\]\}")
# They describe the job and its text, which is compared by its hash: processed again, a document has others.
JOB_COLUMNS = frozenset(MANIFEST_COLUMNS) - {"source"}
_NO_JOB = {name: f"{{document[{name}]}}" for name in JOB_COLUMNS}
Fields = Mapping[str, Any]


class PayloadTemplate:
    """Builds payloads.

    A string that is one placeholder becomes the value with its type; in a longer string it becomes text.

    :param template: JSON with placeholders such as `{document[uuid]}` and `{framework[codeName]}`
    """

    def __init__(self, template: Any) -> None:
        self._template = template
        self._names = set(_placeholders(template))

    def digest(self, document: Fields, framework: Fields) -> str:
        """Return a digest of the payload as it is sent, except for fields of the job."""
        return _digest(json.dumps(self.render({**document, **_NO_JOB}, framework), default=str))

    def check(
        self, documents: Iterable[Fields], frameworks: Collection[Fields], listed: Collection[Fields] = ()
    ) -> None:
        """Raise before anything is sent if it can't be filled in, or does not say which framework is meant.

        :param listed: all frameworks of the service
        """
        for kind, records in (("document", documents), ("framework", frameworks)):
            names = {name for one, name in self._names if one == kind}
            for record in records if names else ():
                for name in sorted(names):
                    if record.get(name) is None:
                        known = ", ".join(sorted(key for key, value in record.items() if value is not None))
                        title = record.get("source") or record.get("name") or record.get("uuid") or "?"
                        raise ComplianceInputError(
                            f"payload refers to {{{kind}[{name}]}}, but '{title}' has no such field. "
                            f"It has: {known}."
                        )
        names = {name for kind, name in self._names if kind == "framework"}
        for one in frameworks:
            for other in listed if names else frameworks:  # without placeholders, it is of one framework
                if other != one and all(other.get(name) == one[name] for name in names):
                    both = " and ".join(
                        f"{found.get('name')!r} (id {found.get('id')})" for found in (one, other)
                    )
                    raise ComplianceInputError(
                        f"payload is the same for the frameworks {both}, so the service can't tell which one "
                        "is meant. Use a field in which they differ, such as {framework[id]}."
                    )

    def render(self, document: Fields, framework: Fields) -> Any:
        """Return the payload for one document and one framework."""
        return _fill_in(self._template, {"document": document, "framework": framework})


@lru_cache(maxsize=100)  # most documents have the same
def _digest(payload: str) -> str:
    return hashlib.sha256(json.dumps(json.loads(payload), sort_keys=True).encode()).hexdigest()[:16]


def _placeholders(value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, str):
        yield from PLACEHOLDER.findall(value)
        if found := re.search(r".{0,20}[{}].{0,20}", PLACEHOLDER.sub("", value)):
            raise ComplianceInputError(
                f"payload has a brace that is not part of a placeholder: {found[0]!r}. The placeholders are "
                "{document[FIELD]} and {framework[FIELD]}. A text with braces can be a field of a document."
            )
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _placeholders(key)
            yield from _placeholders(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _placeholders(item)


def _fill_in(value: Any, fields: Mapping[str, Fields]) -> Any:
    if isinstance(value, str):
        if whole := PLACEHOLDER.fullmatch(value):
            return fields[whole[1]][whole[2]]
        return PLACEHOLDER.sub(lambda found: str(fields[found[1]][found[2]]), value)
    if isinstance(value, Mapping):
        return {_fill_in(key, fields): _fill_in(item, fields) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fill_in(item, fields) for item in value]
    return value
