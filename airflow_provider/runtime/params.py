"""Parameters of operators from templates and XComs, and options: parse them, and hide the secrets in them."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from fractions import Fraction
from typing import Any

from airflow_provider.exceptions import ComplianceInputError, FailureKind
from airflow_provider.provider_info import CONFIG_OPTIONS, CONFIG_SECTION
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import redact_text, sanitize

IS_EXECUTING = "_is_executing"
TEMPLATE_MARKS = ("{{", "{%", "{#")

MaxFailed = int | float | str
MaxFailedByGroup = Mapping[str, MaxFailed]  # of kinds of failures
FAILURE_GROUPS = tuple(sorted({kind.group for kind in FailureKind}))
"""A number, a share from 0.0 to 1.0, or a percentage such as "5%"."""


def as_list(given: Any, what: str) -> list[Any]:
    """Return one or many values as a list.

    A rendered template turns a list into a string, unless it renders native objects; its filter `tojson` also
    puts a single string into quotes.

    :param what: noun of an item, for the error
    """
    given = required(given, what)
    if isinstance(given, str) and given.strip().startswith("["):
        try:
            return list(parse_value(given.strip(), what))
        except ComplianceInputError:
            raise ComplianceInputError(
                f"{redact_text(given)[:200]!r} is not a list of {what}s: use the `tojson` filter."
            ) from None
    if isinstance(given, str):
        return [_unquote(given)]
    if isinstance(given, Sequence):
        return list(given[:])  # one request for all outputs of a mapped task, not one for each
    return list(given) if isinstance(given, Iterable) else [given]


def required(given: Any, what: str) -> Any:
    """Return a parameter as it is; it is an error if its template rendered to nothing.

    :param what: the parameter, for the error
    """
    if optional(given) is None:
        raise ComplianceInputError(
            f"Missing {what}: it is {given!r}. Set it; if it is a template or the output of a task, check "
            "what it returned."
        )
    return given


def _unquote(text: str) -> str:
    """Return a string without the quotes of JSON."""
    if text.strip().startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            pass
    return text


def as_str_list(given: Any, what: str) -> list[str]:
    """Return one or many strings as a list, in order, including duplicates."""
    found = as_list(given, what)
    for item in found:
        if not isinstance(item, str) or optional(item) is None or not item.strip().isprintable():
            raise ComplianceInputError(f"'{sanitize(item, 200)}' is not a valid {what}: remove it.")
    return [text.strip() for text in found]


def unique(values: Iterable[str]) -> list[str]:
    """Return each value once, in order."""
    return list(dict.fromkeys(values))


def as_ids(given: Any, what: str) -> list[str]:
    """Return one or many ids, strings or integers, as a list of strings."""
    return as_str_list([str(item) if type(item) is int else item for item in as_list(given, what)], what)


def as_id(given: Any, what: str) -> str:
    """Return a single id as a string."""
    found = unique(as_ids(given, what))
    if len(found) != 1:
        raise ComplianceInputError(
            f"Expected one {what}, not {len(found)}: for many, map the task with expand()."
        )
    return found[0]


def is_many(given: Any) -> bool:
    """Return whether the value is a list, even for a single item, or a string of one."""
    return given.strip().startswith("[") if isinstance(given, str) else isinstance(given, Iterable)


def as_json(given: Any, what: str) -> Any:
    """Return a value as plain JSON, including the outputs of mapped tasks.

    A string is parsed as JSON: a template renders one, unless it renders native objects.
    """
    given = required(given, what)
    value = _to_builtins(parse_value(given, what) if isinstance(given, str) else given)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ComplianceInputError(f"Invalid {what}, which is not JSON: {error}.") from None
    return value


def _to_builtins(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_builtins(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_to_builtins(item) for item in value[:]]
    return value


def outputs_of(given: Any, what: str) -> Iterator[Any]:
    """Yield what upstream tasks returned, mapped or not, or what stands for it: strings and mappings.

    Lists in lists, and JSON that a template rendered, are taken apart. A task that left nothing, such
    as one that was skipped, is None.

    :param what: the parameter, for the error
    """
    if isinstance(given, str):
        text = given.strip()
        if text[:1] in ("[", "{", '"'):
            yield from outputs_of(parse_value(text, what), what)
        elif text.startswith("Lazy") and "(" in text:  # the outputs of a mapped task, rendered by a template
            raise ComplianceInputError(
                f"'{text[:80]}' is not a valid {what}: a template can't render the outputs of a mapped task. "
                "Pass the output itself, such as `ingest.output`, or add `| list | tojson` to the template."
            )
        else:
            yield optional(text)
    elif is_nothing(given) or isinstance(given, Mapping):
        yield optional(given)
    elif isinstance(given, Iterable) and not isinstance(given, bytes):
        # One request for all outputs of a mapped task, not one for each.
        for output in given[:] if isinstance(given, Sequence) else given:
            yield from outputs_of(output, what)
    else:
        raise ComplianceInputError(
            f"{what} contains {type(given).__name__}: use results of tasks, URIs, or dicts."
        )


def optional(given: Any) -> Any:
    """Return the value, or None if a template rendered nothing."""
    if isinstance(given, str):
        return None if given.strip() in ("", "None", "null", '""') else given.strip()
    return None if is_nothing(given) else given


def is_nothing(given: Any) -> bool:
    """Return whether the output of a task is empty.

    Airflow 3.1 has a mark of its own for a mapped instance without output. Not needed when 3.2 is the oldest
    supported version.
    """
    return given is None or type(given).__name__ == "ArgNotSet"


def parse_value(text: str, what: str) -> Any:
    """Return the value of a string: JSON, or a Python object that a template rendered."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
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


class RedactedField:
    """A template field with one or many addresses.

    Airflow renders the templates of a task and stores the result before it calls `execute`. Until then the
    field shows a stand-in for a value with secrets; the operator itself gets the value as it is.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, task: Any, owner: type | None = None) -> Any:
        if task is None:
            return self
        try:
            value = vars(task)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        return value if vars(task).get(IS_EXECUTING) else _protect(value)

    def __set__(self, task: Any, value: Any) -> None:
        vars(task)[self._name] = value.value if isinstance(value, RedactedValue) else value


class RedactedValue:
    """A value with secrets; what Airflow makes of it has none.

    :param value: the value as it is
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def serialize(self) -> Any:
        """Return what Airflow stores from 3.0 on."""
        return _redact(self.value)

    def __str__(self) -> str:
        return str(self.serialize())  # what Airflow 2.11 stores

    __repr__ = __str__


def _protect(value: Any) -> Any:
    if not isinstance(value, str | list | tuple) or _redact(value) == (
        list(value) if isinstance(value, tuple) else value
    ):
        return value
    is_template = any(mark in str(value) for mark in TEMPLATE_MARKS)  # which has to be rendered first
    return value if is_template else RedactedValue(value)


def _redact(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value) if value.lstrip().startswith("[") else redact(value)
    return [_redact(item) for item in value] if isinstance(value, list | tuple) else value


def count_allowed(max_failed: MaxFailed, total: int, name: str = "max_failed") -> Fraction:
    """Return how many of the total may fail; raise ValueError where `max_failed` is invalid.

    Shares are exact: in binary, 0.29 of 100 would be less than 29.

    :param name: the name of the parameter, for the error
    """
    match max_failed:
        case bool():
            pass
        case int() if max_failed >= 0:
            return Fraction(max_failed)
        case float() if 0.0 <= max_failed <= 1.0:
            return Fraction(str(max_failed)) * total
        case str() if percentage := re.fullmatch(r"\s*(100|\d{1,2}(?:\.\d+)?)\s*%\s*", max_failed):
            return Fraction(percentage[1]) * total / 100
    raise ValueError(
        f"{name} must be a number (int, at least 0), a share from 0.0 to 1.0 (float) or a percentage "
        f"such as '5%', not {max_failed!r}."
    )


def check_max_failed(max_failed: Any) -> None:
    """Raise ValueError where `max_failed` is neither a limit nor limits by group."""
    if not isinstance(max_failed, Mapping):
        count_allowed(max_failed, total=0)
        return
    if unknown := [group for group in max_failed if group not in FAILURE_GROUPS]:
        raise ValueError(
            f"max_failed has no group {unknown[0]!r}: use {' and '.join(map(repr, FAILURE_GROUPS))}."
        )
    for group, limit in max_failed.items():
        count_allowed(limit, total=0, name=f"max_failed[{group!r}]")


def parse_limit(given: Any) -> MaxFailed | None:
    """Return `max_submitted` as a number, a share or a percentage, which a template may have rendered."""
    limit: MaxFailed | None = optional(given)
    if isinstance(limit, str) and not limit.endswith("%"):
        with suppress(ValueError):  # the check below names the valid values
            limit = int(limit) if limit.isdecimal() else float(limit)
    if limit is not None:
        count_allowed(limit, total=0, name="max_submitted")
    return limit


def read_option(name: str) -> str:
    """Return an option of [compliance] in the configuration of Airflow, or its default."""
    from airflow.providers.common.compat.sdk import conf  # which commands like `verify` do without

    return str(conf.get(CONFIG_SECTION, name, fallback=CONFIG_OPTIONS[name]["default"]) or "")


def read_number(name: str) -> int:
    """Return an option that is a whole number, or its default."""
    from airflow.providers.common.compat.sdk import conf

    return int(conf.getint(CONFIG_SECTION, name, fallback=int(CONFIG_OPTIONS[name]["default"])))
