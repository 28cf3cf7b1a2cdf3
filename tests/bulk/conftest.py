"""Fixtures for tests of what bulk operators share; most of them are tested by an ingest."""

from __future__ import annotations

from tests.ingest.conftest import _impatient, corpus, outcome, service

__all__ = ["_impatient", "corpus", "outcome", "service"]
