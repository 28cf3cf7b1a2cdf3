"""Fixtures for tests of operators."""

from __future__ import annotations

from tests.support.jobs import service

__all__ = ["service"]
