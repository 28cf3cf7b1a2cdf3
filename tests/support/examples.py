"""The example DAGs, and the Airflow that some of them need."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "example_dags").glob("*.py"))
NEEDED = {
    "assess_and_review": "3.1",
    "reassess_on_framework_change": "3.0",
    "ComplianceReviewAssessmentOperator": "3.1",
}
