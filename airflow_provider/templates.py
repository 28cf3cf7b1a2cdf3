"""What templates and XComs make of parameters."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.hooks.failing import without_retries


def texts_of(given: Any, what: str) -> list[str]:
    """Return the texts that were given, one or many, without doubles and in their order.

    A list that went through a template is a text again, where templates do not render native objects.

    :param what: what one of them is, for the error
    """
    many: Any = given
    if isinstance(given, Sequence) and not isinstance(given, str):
        many = given[:]  # one request for the outputs of a mapped task, where a loop makes one for each
    elif isinstance(given, str):
        many = [given]
        if given.strip().startswith("["):
            try:
                many = ast.literal_eval(given.strip())
            except (ValueError, SyntaxError):
                raise without_retries(
                    ComplianceInputError(f"{given[:200]!r} is no list of {what}s.")
                ) from None
    found = None if given is None else list(many)
    if found is None or not all(isinstance(each, str) and each.strip() for each in found):
        raise without_retries(ComplianceInputError(f"{given!r} has something in it that is no {what}."))
    return list(dict.fromkeys(each.strip() for each in found))
