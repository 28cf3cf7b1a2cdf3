"""The payload of each assessment: a JSON template with fields of the document and of the framework."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.ingest.documents import MANIFEST_COLUMNS

DEFAULT_PAYLOAD: dict[str, Any] = {
    "contentUuid": "{document[uuid]}",
    "framework": "{framework[codeName]}",
}
PLACEHOLDER = re.compile(r"\{(\w+)\[([^\[\]{}]+)\]\}")
Fields = Mapping[str, Any]
PayloadCallable = Callable[[Fields, Fields], Any]


class PayloadTemplate:
    """Builds payloads.

    A string that is one placeholder becomes the value with its type; in a longer string it becomes text.

    :param template: JSON with placeholders such as `{document[uuid]}` and `{framework[codeName]}`, or a
        callable that gets the fields of both and returns the payload
    """

    def __init__(self, template: Any | PayloadCallable) -> None:
        self._template = template
        self._names = set() if callable(template) else set(_placeholders(template))
        for kind, name in sorted(self._names):
            if kind not in ("document", "framework"):
                raise ComplianceInputError(
                    f"payload has the placeholder {{{kind}[{name}]}}: only document[...] and framework[...] "
                    "are known."
                )

    def digest(self, document: Fields) -> str:
        """Return a digest that is equal where verdicts can be carried forward.

        It covers the template and the document's own fields in it, or the code of a callable, the values that
        it refers to, and all own fields. Those of a manifest do not count: they describe the job and the
        text, which may be processed again.
        """
        names = document if callable(self._template) else {n for kind, n in self._names if kind == "document"}
        used = sorted(name for name in names if name not in MANIFEST_COLUMNS)
        text = json.dumps([self._code, [[name, document.get(name)] for name in used]], default=str)
        return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]

    @cached_property
    def _code(self) -> str:
        if callable(self._template):
            try:
                return inspect.getsource(self._template) + _values_in(self._template)
            except (OSError, TypeError):
                raise ComplianceInputError(
                    f"payload is {type(self._template).__name__}, whose code can't be read, so nobody could "
                    "tell whether it has changed since the last night. Use a function (def or lambda) of the "
                    "DAG file, or a JSON template."
                ) from None
        return json.dumps(self._template, sort_keys=True)

    def check(self, documents: Iterable[Fields], frameworks: Iterable[Fields]) -> None:
        """Raise if a placeholder names a field that one of these does not have, before anything is sent."""
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

    def render(self, document: Fields, framework: Fields) -> Any:
        """Return the payload for one document and one framework."""
        if callable(self._template):
            # Copies: a callable that changes what it gets must not change the payloads of other cells.
            return self._template(copy.deepcopy(dict(document)), copy.deepcopy(dict(framework)))
        return _fill_in(self._template, {"document": document, "framework": framework})


def _values_in(function: Any) -> str:
    """Return the values that a function refers to, as JSON: of its closure, its defaults and its module."""
    if not inspect.isroutine(function):
        return ""
    found = inspect.getclosurevars(function)
    defaults = [getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)]
    values = {**found.globals, **found.nonlocals, "defaults": defaults if any(defaults) else None}
    # Whatever is no JSON, such as a module, is not compared: it may look different in every process.
    texts = {name: text for name, value in values.items() if (text := _as_text(value)) is not None}
    return json.dumps(texts, sort_keys=True) if texts else ""


def _as_text(value: Any) -> str | None:
    try:
        return None if value is None else json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None


def _placeholders(value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, str):
        for found in PLACEHOLDER.finditer(value):
            yield found[1], found[2]
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _placeholders(key)
            yield from _placeholders(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _placeholders(each)


def _fill_in(value: Any, fields: Mapping[str, Fields]) -> Any:
    if isinstance(value, str):
        if whole := PLACEHOLDER.fullmatch(value):
            return fields[whole[1]][whole[2]]
        return PLACEHOLDER.sub(lambda found: str(fields[found[1]][found[2]]), value)
    if isinstance(value, Mapping):
        return {_fill_in(key, fields): _fill_in(each, fields) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_fill_in(each, fields) for each in value]
    return value
