"""Fixtures for tests of waiting; a test that is a coroutine runs in virtual time."""

from __future__ import annotations

import inspect

import pytest

from tests.support import virtual_time
from tests.support.jobs import service

__all__ = ["service"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    virtual_time.run(pyfuncitem.obj(**arguments))
    return True
