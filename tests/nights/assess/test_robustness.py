"""A bulk assessment on a bad day: stores, indexes, limits, deadlines and kills."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset

from airflow_provider import exceptions as exc
from airflow_provider.client.findings import Finding
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.nights.assess import output
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.storage.locations import Location
from airflow_provider.waiting import rules
from tests.support.nights import NightOutcome, Nights
from tests.support.outlets import outlet_events
from tests.support.signals import signalled_when

TEXTS = {f"in/{number}.pdf": f"Text {number} with an exit plan." for number in range(10)}


class OwnHook(ComplianceHook):
    """The hook of a deployment whose results look like no other's."""

    def findings_of(self, results: Any) -> list[Finding]:
        """Return one finding for all results."""
        found = super().findings_of(results)
        return [Finding(1, "All of it", "MISSING", f"{len(found)} criteria", code="ALL")]


class OwnOperator(ComplianceAssessOperator):
    """An operator with a hook of its own."""

    hook_class = OwnHook


def assess(nights: Nights, documents: Any, **options: Any) -> ComplianceAssessOperator:
    return nights.task(documents, **{"frameworks": "DORA", **options})


def run_night(nights: Nights, **options: Any) -> NightOutcome:
    return nights.assess_texts(TEXTS, **{"frameworks": "DORA", **options})


def find(nights: Nights, pattern: str) -> list[Path]:
    return sorted(nights.folder.glob(f"out/**/{pattern}"))


@pytest.mark.parametrize("name", ["TableFile", "CsvTables", "ParquetTable", "put_sync"])
def test_a_store_that_fails_while_the_night_is_published_costs_no_assessment(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def failing(*arguments: Any) -> Any:
        raise exc.ComplianceStorageError("The store is not available.")

    documents, attempts = nights.manifest(TEXTS), nights.attempts(1)
    monkeypatch.setattr(output, "has_pyarrow", lambda: name == "ParquetTable")
    with monkeypatch.context() as broken:
        broken.setattr(output, name, failing)
        with pytest.raises(exc.ComplianceStorageError):
            attempts.run(assess(nights, documents))
    assert not find(nights, "assessments.jsonl")
    sent = service.counters()["operations"]["submit_assessment"]
    if name == "ParquetTable":
        pytest.importorskip("pyarrow")
    monkeypatch.undo()
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", service.connection_json)
    result = attempts.run(assess(nights, documents))
    assert service.counters()["operations"]["submit_assessment"] == sent
    assert (result["assessed"], len(NightOutcome(result).findings)) == (len(TEXTS), 6 * len(TEXTS))
    for written in ("findings.jsonl.gz", "report.html", "DORA.csv"):
        assert len(find(nights, written)) == 1
    assert not find(nights, "*.part")


def in_flight(service: Emulator) -> list[str]:
    return [
        assessment["uuid"]
        for assessment in service.assessments()
        if assessment["status"] in ("PENDING", "RUNNING")
    ]


def completes(service: Emulator, nights: Nights, count: int) -> Callable[[], bool]:
    """Complete some once the journal has all; then the condition holds."""

    def condition() -> bool:
        segments = "".join(path.read_text() for path in find(nights, "journal-*.jsonl"))
        known = {record["assessment_id"] for record in map(json.loads, segments.splitlines())}
        if len(known) < len(TEXTS):
            return False
        for uuid in in_flight(service)[:count]:
            service.set_assessment(uuid, status="COMPLETED")
        return True

    return condition


@pytest.fixture
def _never_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a long poll_interval: only the last poll finds anything."""
    monkeypatch.setattr(rules, "next_poll_time", lambda now, *_, **__: now + 3600)


@pytest.mark.usefixtures("_never_polled")
def test_assessments_of_documents_that_left_the_list_are_cancelled(service: Emulator, nights: Nights) -> None:
    service.configure(jobs="manual")
    documents, attempts = nights.manifest(TEXTS), nights.attempts(1)
    task = assess(nights, documents, cancel_on_kill=False)
    with (
        signalled_when(completes(service, nights, 0), task.on_kill),
        pytest.raises(exc.ComplianceInterruptedError),
    ):
        attempts.run(task)
    manifest = Path(documents.removeprefix("file://"))
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[:4]))
    with (
        signalled_when(
            lambda: service.count("cancel_assessment") == 6, lambda: service.configure(jobs="instant")
        ),
        pytest.MonkeyPatch.context() as polled,
    ):
        polled.setattr(rules, "next_poll_time", lambda now, *_, **__: now + 1)
        assert attempts.run(assess(nights, documents))["assessed"] == 4
    assert (service.count("submit_assessment"), len(service.assessments())) == (10, 4)


def test_findings_are_what_the_hook_of_a_deployment_reads(
    service: Emulator, nights: Nights, deferrable: bool
) -> None:
    night = run_night(nights, kind=OwnOperator, deferrable=deferrable)
    assert {(finding["criterion"], finding["rationale"]) for finding in night.findings} == {
        ("ALL", "6 criteria")
    }
    assert night.result["categories"] == {"DORA": {"MISSING": len(TEXTS)}}
    again = run_night(nights, kind=OwnOperator)
    # None of them is a criterion that the service lists, so all of these are asked again.
    assert (again.result["carried"], again.result["changed"]) == (0, 0)
    assert again.result["unanswered"] == 6 * len(TEXTS)


def test_assets_get_the_result(service: Emulator, nights: Nights) -> None:
    asset, events = Asset("s3://bucket/verdicts"), outlet_events()
    documents = nights.manifest(TEXTS)
    result = nights.attempts(1).run(assess(nights, documents, outlets=[asset]), outlet_events=events)
    assert events[asset].extra == {**result, "destination": nights.destination()}
    assert {"assessments", "findings", "report", "assessed", "carried", "failed", "changed"} <= result.keys()
    assert sum(result["categories"]["DORA"].values()) == 6 * len(TEXTS)
    assert json.loads(json.dumps(result)) == result


def test_hook_lineage_has_the_texts_and_the_tables(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.compat.lineage import hook as compat

    added: dict[str, list[str]] = {"input": [], "output": []}

    class Collector:
        def add_input_asset(self, context: Any, uri: str) -> None:
            added["input"].append(uri)

        def add_output_asset(self, context: Any, uri: str) -> None:
            added["output"].append(uri)

    monkeypatch.setattr(compat, "get_hook_lineage_collector", Collector)
    documents = [
        nights.manifest({"in/a.pdf": "x"}, path="s3://c@texts/a.txt"),
        nights.manifest({"in/b.pdf": "y"}),
    ]
    result = nights.attempts(1).run(assess(nights, documents))
    assert added == {"input": ["s3://texts/a.txt"], "output": [result["assessments"], result["findings"]]}


@pytest.mark.parametrize("path", ["///", ["a"]])
def test_an_invalid_path_of_a_text_fails_no_assessment(service: Emulator, nights: Nights, path: Any) -> None:
    documents = nights.manifest(TEXTS, path=path)
    assert nights.attempts(1).run(assess(nights, documents))["assessed"] == len(TEXTS)


def test_a_framework_that_is_renamed_while_the_task_is_deferred(service: Emulator, nights: Nights) -> None:
    service.configure(jobs="manual")
    frameworks = copy.deepcopy(service.frameworks())

    def meanwhile(number: int) -> None:
        frameworks[0]["codeName"] = "DORA 2"
        service.set_frameworks(frameworks)
        for uuid in in_flight(service):
            service.set_assessment(uuid, status="COMPLETED")

    attempts, documents = nights.attempts(1), nights.manifest(TEXTS)
    attempts.while_deferred = meanwhile
    task = assess(nights, documents, frameworks=str(frameworks[0]["id"]), deferrable=True)
    result = attempts.run(task)
    assert (result["assessed"], set(result["categories"])) == (len(TEXTS), {"DORA", "DORA 2"})
    assert {row["framework"] for row in NightOutcome(result).rows} == {"DORA"}  # as it was assessed


def test_stored_results_are_read_once_however_often_the_task_resumes(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.configure(jobs="manual")
    resumes, reads, read = [], Counter[str](), Location.read

    def meanwhile(number: int) -> None:
        resumes.append(sum(reads.values()))
        left = in_flight(service)
        for uuid in left[: -(-len(left) // 2)]:
            service.set_assessment(uuid, status="COMPLETED")

    def counted(location: Location) -> bytes | None:
        reads[location.uri] += "/results/" in location.uri
        return read(location)

    monkeypatch.setattr(Location, "read", counted)
    attempts = nights.attempts(1)
    attempts.while_deferred = meanwhile
    task = assess(nights, nights.manifest(TEXTS), frameworks="DORA", deferrable=True)
    assert attempts.run(task)["assessed"] == len(TEXTS)
    assert len(resumes) > 2
    assert not any(resumes)
    assert max(reads.values()) == 1


@pytest.mark.parametrize("status", [400, 403])
def test_frameworks_that_can_t_be_listed_after_a_deferral_are_left_to_a_retry(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(rules, "OUTAGE_SECONDS", 0.2)
    service.configure(jobs="manual")

    def meanwhile(number: int) -> None:
        service.fail("list_frameworks", status=status, times=None)
        for uuid in in_flight(service):
            service.set_assessment(uuid, status="COMPLETED")

    attempts, documents = nights.attempts(1), nights.manifest(TEXTS)
    attempts.while_deferred = meanwhile
    task = assess(nights, documents, frameworks="DORA", deferrable=True)
    with pytest.raises(exc.ComplianceError, match=str(status)) as raised:
        attempts.run(task)
    assert raised.value.transient
    service.clear_faults()
    assert attempts.run(task)["assessed"] == service.count("submit_assessment") == len(TEXTS)


@pytest.mark.parametrize("wanted", [(), ["DORA", "GDPR"]])
def test_a_framework_that_is_gone_while_the_task_is_deferred_loses_no_rows_in_silence(
    service: Emulator, nights: Nights, wanted: Any
) -> None:
    service.configure(jobs="manual")
    frameworks = copy.deepcopy(service.frameworks())
    kept = [framework for framework in frameworks if framework["codeName"] != "GDPR"]

    def meanwhile(number: int) -> None:
        service.set_frameworks(kept)
        for uuid in in_flight(service):
            service.set_assessment(uuid, status="COMPLETED")

    attempts, documents = nights.attempts(1), nights.manifest(TEXTS)
    attempts.while_deferred = meanwhile
    task = assess(nights, documents, frameworks=wanted, deferrable=True)
    with pytest.raises(
        exc.ComplianceError, match=r"no longer lists the frameworks|no framework 'GDPR'"
    ) as raised:
        attempts.run(task)
    assert raised.value.transient
    assert not find(nights, "assessments.jsonl")
    service.set_frameworks(frameworks)  # it was an outage: the next attempt has all of them
    result = attempts.run(task)
    assert len(NightOutcome(result).rows) == len(TEXTS) * (2 if wanted else len(frameworks))
    assert service.count("submit_assessment") == result["assessed"]
