"""The package stays as small as it was decided."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "airflow_provider"
# Lines without the emulator. What a feature adds, another change has to take away, or this says why not.
# Since 28,100: shards by ranges of hashes, a judge of its own, what stands after an expert's decision, and
# an erasure that depends on no service (2,000); erasures in the evidence, and backups (150); names of
# shards, numbered forms, the latest record of a run (60); what the nights say about a document, dates
# without a night, damaged tables (105); blocks of findings, listings in all stores (97); the morning
# message, a limit of submits, a sample (310); a payload that does not say which framework is meant (17);
# errors that name both connections (14); jobs that shards share (29). From 30,823 by kinds of failures,
# limits for each group of them, what a retry does not send again, and the largest file (221); answers to
# submits that are in flight when an error ends an attempt (16).
MAX_LINES = 31_060


def test_package_does_not_outgrow_its_limit() -> None:
    lines: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        folder = path.relative_to(PACKAGE).parts[0]
        lines[folder] += len(path.read_text().splitlines())
    del lines["emulator"]
    assert lines.total() <= MAX_LINES, lines.most_common()
