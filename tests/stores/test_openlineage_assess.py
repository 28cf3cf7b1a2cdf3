"""What OpenLineage's own provider makes of a bulk assessment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskInstanceState

from airflow_provider.emulator import Emulator
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.storage import lineage
from tests.stores.test_openlineage import extracted
from tests.support.nights import Nights

pytest.importorskip(
    "openlineage.client", reason="OpenLineage is in the environment of 'make test-servers' alone"
)

pytestmark = pytest.mark.stores

TEXTS = {"in/a.pdf": "An exit plan with a transition period and a migration.", "in/b.pdf": "Nothing."}


@pytest.fixture
def assessed(
    compliance_service: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ComplianceAssessOperator:
    """An operator that has assessed two texts whose places are known, and one document by its uuid."""
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", compliance_service.connection_json)
    nights = Nights(f"file://{tmp_path}/out/", tmp_path, compliance_service)
    known = [nights.manifest({name: text}, path=f"s3://c@texts/{name}.txt") for name, text in TEXTS.items()]
    uuid = compliance_service.add_job(text="x", status="COMPLETED")
    task = nights.task([*known, uuid], frameworks="DORA")
    nights.attempts(1).run(task)
    return task


def assertions(found: Any) -> dict[str, dict[str, bool]]:
    """Return the assertions on each input, by its name."""
    return {
        dataset.name: {
            one.assertion: one.success for one in dataset.inputFacets["dataQualityAssertions"].assertions
        }
        if dataset.inputFacets
        else {}
        for dataset in found.inputs
    }


def test_each_criterion_is_an_assertion_on_its_text(assessed: ComplianceAssessOperator) -> None:
    found = extracted(assessed, TaskInstanceState.SUCCESS)
    assert {(dataset.namespace, dataset.name) for dataset in found.inputs} == {
        ("s3://texts", f"{name}.txt") for name in TEXTS
    }
    by_text = assertions(found)
    assert by_text["in/a.pdf.txt"]["DORA: DORA-30-3-f is sufficiently regulated"] is True
    assert len(by_text["in/a.pdf.txt"]) == 6
    assert set(by_text["in/b.pdf.txt"].values()) == {False}
    rows = {
        Path(dataset.name).name: dataset.outputFacets["outputStatistics"].rowCount
        for dataset in found.outputs
    }
    assert rows == {"assessments.jsonl": 3, "findings.jsonl.gz": 18}


def test_of_too_many_assertions_those_that_fail_are_kept(
    assessed: ComplianceAssessOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "MAX_ASSERTIONS", 8)
    by_text = assertions(assessed.get_openlineage_facets_on_complete(None))
    kept = [success for dataset in by_text.values() for success in dataset.values()]
    assert len(kept) == 8
    assert not any(kept)
