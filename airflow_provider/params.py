"""What templates and XComs make of parameters."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.hooks.errors import as_non_retryable


def as_list(given: Any, what: str) -> list[Any]:
    """Return what was given, one or many, as a list.

    A list that went through a template is a text again, where templates do not render native objects.

    :param what: what one of them is, for the error
    """
    if given is None:
        raise as_non_retryable(
            ComplianceInputError(f"There is no {what}: the task that should give it has returned nothing.")
        )
    if isinstance(given, str) and given.strip().startswith("["):
        try:
            return list(ast.literal_eval(given.strip()))
        except (ValueError, SyntaxError):
            raise as_non_retryable(ComplianceInputError(f"{given[:200]!r} is no list of {what}s.")) from None
    if isinstance(given, str):
        return [given]
    if isinstance(given, Sequence):
        return list(given[:])  # one request for the outputs of a mapped task, where a loop makes one for each
    return list(given) if isinstance(given, Iterable) else [given]


def as_str_list(given: Any, what: str) -> list[str]:
    """Return the texts that were given, one or many, without doubles and in their order."""
    found = as_list(given, what)
    if not all(isinstance(each, str) and each.strip() for each in found):
        raise as_non_retryable(ComplianceInputError(f"{given!r} has something in it that is no {what}."))
    return list(dict.fromkeys(each.strip() for each in found))


def as_ids(given: Any, what: str) -> list[str]:
    """Return the ids that were given, one or many, as texts: a service may count, or draw random letters."""
    return as_str_list([str(each) if type(each) is int else each for each in as_list(given, what)], what)


def as_id(given: Any, what: str) -> str:
    """Return the one id that was given, as a text."""
    found = as_ids(given, what)
    if len(found) != 1:
        raise as_non_retryable(ComplianceInputError(f"One {what} is expected, not {len(found)}."))
    return found[0]


def is_many(given: Any) -> bool:
    """Tell whether a list was given, also as a text, and be it of one."""
    return given.strip().startswith("[") if isinstance(given, str) else isinstance(given, Iterable)


def as_json(given: Any, what: str) -> Any:
    """Return what was given as plain JSON values, also what the outputs of mapped tasks have in it.

    A text is taken for JSON, as a template gives it where it does not render native objects.
    """
    if optional(given) is None:
        raise as_non_retryable(
            ComplianceInputError(f"Nothing was given as {what}: the task that should has returned nothing.")
        )
    plain = _plain(_parsed(given, what) if isinstance(given, str) else given)
    try:
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise as_non_retryable(
            ComplianceInputError(f"What is given as {what} is not JSON: {error}.")
        ) from None
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value[:]]
    return value


def optional(given: Any) -> Any:
    """Return what was given, or None where a template has made a text of nothing."""
    if isinstance(given, str):
        return None if given.strip() in ("", "None", "null") else given.strip()
    return given


def as_json_or_file(given: Any, what: str) -> Any:
    """Return the JSON that was given: as it is, as a text, or as the address of a file in object storage.

    :param what: what it is, for the error
    """
    value = optional(given)
    if not isinstance(value, str) or value.startswith(("{", "[")):
        return as_json(value, what)
    from airflow_provider.storage.errors import storage_errors
    from airflow_provider.storage.locations import Location

    location = Location(value)
    with storage_errors(location, "read"), location.fs.open(location.path, "rb") as file:
        return _parsed(file.read().decode(), f"{what} (in '{location}')")


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)  # what a template makes of an object, where it renders no native ones
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise as_non_retryable(
            ComplianceInputError(
                f"What is given as {what} is a text that is not JSON: give a dict or a list, or the output "
                "of a task. In a template, write {{ ... | tojson }}."
            )
        ) from None


def as_seconds(value: float | timedelta, name: str) -> float:
    """Return a duration in seconds; what is not one is refused when the DAG is parsed.

    :param value: seconds, or a timedelta
    :param name: the parameter, for the error
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ValueError(
            f"{name} must be a timedelta or a number of seconds that is not negative, not {value!r}."
        )
    return float(seconds)
