"""Fixtures for tests of the evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nights.evidence.erasable import Tree
from tests.support.nights import Nights, render_plainly
from tests.support.speed import skip_fsync


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_fsync(monkeypatch)


@pytest.fixture
def plain_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider.nights.reports.night.render_night", render_plainly)


@pytest.fixture
def nights(tmp_path: Path, plain_report: None) -> Nights:
    return Nights(f"file://{tmp_path}/out/", tmp_path / "in")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """With the real report of a night."""
    return Tree(Nights(f"file://{tmp_path}/out/", tmp_path / "in"))
