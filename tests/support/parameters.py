"""The parameters of an operator, over all classes that it is made of."""

from __future__ import annotations

import inspect
import re
from typing import Any


def own_parameters(kind: type[Any]) -> set[str]:
    """Return the parameters that this provider's classes add to those of Airflow."""
    own: set[str] = set()
    for each in kind.__mro__:
        if each.__module__.startswith("airflow_provider.") and "__init__" in vars(each):
            own |= set(inspect.signature(vars(each)["__init__"]).parameters) - {"self", "kwargs"}
    return own


def described_parameters(kind: type[Any]) -> set[str]:
    """Return the parameters that the class's docstring describes."""
    return set(re.findall(r":param (\w+):", kind.__doc__ or ""))
