"""Fixtures for tests of waiting."""

from __future__ import annotations

from tests.support.jobs import service

__all__ = ["service"]
