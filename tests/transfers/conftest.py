"""Fixtures for tests of transfers."""

from __future__ import annotations

from tests.support.jobs import service

__all__ = ["service"]
