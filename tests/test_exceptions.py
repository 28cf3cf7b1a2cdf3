"""The tree of errors is what its documentation says."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from airflow_provider import exceptions

ALL = [
    kind
    for _, kind in inspect.getmembers(exceptions, inspect.isclass)
    if issubclass(kind, exceptions.ComplianceError)
]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_the_docstring_tells_which_errors_are_transient(kind: type[exceptions.ComplianceError]) -> None:
    (line,) = re.findall(rf"^.*\b{kind.__name__}\b(.*)$", exceptions.__doc__ or "", re.MULTILINE)
    assert ("*" in line[:24]) is kind.transient


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_can_be_pickled(kind: type[exceptions.ComplianceError]) -> None:
    error = kind("what happened")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (kind, "what happened", vars(error))
