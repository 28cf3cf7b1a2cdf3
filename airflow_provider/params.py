"""Parse operator parameters that come from templates and XComs."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow_provider.exceptions import ComplianceInputError


def as_list(given: Any, what: str) -> list[Any]:
    """Return one or many values as a list.

    A rendered template turns a list into a string, unless it renders native objects.

    :param what: what an item is, for the error
    """
    if given is None:
        raise ComplianceInputError(f"Missing {what}: the upstream task returned nothing.")
    if isinstance(given, str) and given.strip().startswith("["):
        try:
            return list(ast.literal_eval(given.strip()))
        except (ValueError, SyntaxError):
            raise ComplianceInputError(f"{given[:200]!r} is not a list of {what}s.") from None
    if isinstance(given, str):
        return [given]
    if isinstance(given, Sequence):
        return list(given[:])  # one request for all outputs of a mapped task, not one for each
    return list(given) if isinstance(given, Iterable) else [given]


def as_str_list(given: Any, what: str) -> list[str]:
    """Return one or many strings as a list, de-duplicated and in order."""
    found = as_list(given, what)
    if not all(isinstance(each, str) and each.strip() for each in found):
        raise ComplianceInputError(f"{given!r} contains an item that is not a valid {what}.")
    return list(dict.fromkeys(each.strip() for each in found))


def as_ids(given: Any, what: str) -> list[str]:
    """Return one or many ids, strings or integers, as a list of strings."""
    return as_str_list([str(each) if type(each) is int else each for each in as_list(given, what)], what)


def as_id(given: Any, what: str) -> str:
    """Return a single id as a string."""
    found = as_ids(given, what)
    if len(found) != 1:
        raise ComplianceInputError(f"Expected one {what}, not {len(found)}.")
    return found[0]


def is_many(given: Any) -> bool:
    """Return whether the value is a list, even for a single item, or a string of one."""
    return given.strip().startswith("[") if isinstance(given, str) else isinstance(given, Iterable)


def as_json(given: Any, what: str) -> Any:
    """Return a value as plain JSON, including the outputs of mapped tasks.

    A string is parsed as JSON: a template renders one, unless it renders native objects.
    """
    if optional(given) is None:
        raise ComplianceInputError(f"Missing {what}: the upstream task returned nothing.")
    value = _to_builtins(_parse(given, what) if isinstance(given, str) else given)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ComplianceInputError(f"Invalid {what}, which is not JSON: {error}.") from None
    return value


def _to_builtins(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_builtins(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_to_builtins(each) for each in value[:]]
    return value


def optional(given: Any) -> Any:
    """Return the value, or None if a template has rendered nothing."""
    if isinstance(given, str):
        return None if given.strip() in ("", "None", "null") else given.strip()
    return given


def as_json_or_file(given: Any, what: str) -> Any:
    """Return JSON from a value, a string, or the URI of a file in object storage.

    :param what: what it is, for the error
    """
    value = optional(given)
    if not isinstance(value, str) or value.startswith(("{", "[")):
        return as_json(value, what)
    from airflow_provider.storage.locations import Location, storage_errors

    location = Location(value)
    with storage_errors(location, "read"), location.fs.open(location.path, "rb") as file:
        return _parse(file.read().decode(), f"{what} (in '{location}')")


def _parse(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)  # what a template renders of a Python object
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ComplianceInputError(
            f"Invalid {what}, a string that is not JSON: pass a dict, a list or the output of a task. "
            "In a template, write {{ ... | tojson }}."
        ) from None


def as_seconds(value: float | timedelta, name: str) -> float:
    """Return a duration in seconds; an invalid one fails when the DAG is parsed.

    :param value: seconds, or a timedelta
    :param name: the parameter, for the error
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ValueError(f"{name} must be a timedelta or a number of seconds, at least 0, not {value!r}.")
    return float(seconds)
