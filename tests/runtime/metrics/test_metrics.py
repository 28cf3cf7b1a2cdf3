"""Names, tags and numbers of metrics, and what happens where they can't be sent."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from airflow.providers.common.compat import sdk

from airflow_provider.client import tokens
from airflow_provider.client.http.wire import Observation
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceJobError,
    ComplianceServerError,
    ComplianceStorageError,
)
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.assessment import ComplianceSubmitAssessmentOperator
from airflow_provider.operators.content import ComplianceSubmitFileOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.runtime import metrics
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from airflow_provider.waiting.poller import Subscription
from tests.support import virtual_time
from tests.support.attempts import Attempts
from tests.support.jobs import completed
from tests.support.polled import COMPLETED, PolledService

DOCS = Path(__file__).parents[3] / "docs"


class Stats:
    """Records what is sent, by name and the values of the tags; fails if it is told so."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.gauges: dict[str, list[float]] = {}
        self.tags: list[dict[str, str]] = []
        self.error: Exception | None = None

    def incr(self, name: str, count: int, *, tags: dict[str, str]) -> None:
        if self.error:
            raise self.error
        self.counters[".".join((name, *tags.values()))] += count
        self.tags.append(tags)

    def gauge(self, name: str, value: float, *, tags: dict[str, str]) -> None:
        self.gauges.setdefault(".".join((name, *tags.values())), []).append(value)

    def values(self, metric: str) -> dict[str, int]:
        """Return the counters of a metric by the values of their tags, without the connection."""
        found = (re.fullmatch(rf"compliance\.{metric}\.[^.]+\.(.+)", name) for name in self.counters)
        return {match[1]: self.counters[match[0]] for match in found if match}


@pytest.fixture
def stats(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stats]:
    """Airflow with metrics on."""
    yield from _configured(monkeypatch, "statsd_on")


def _configured(monkeypatch: pytest.MonkeyPatch, *options: str) -> Iterator[Stats]:
    made = Stats()
    for name in options:
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", "True")
    monkeypatch.setattr(sdk, "Stats", made, raising=False)
    metrics._warn_once.cache_clear()
    metrics._get_stats.cache_clear()
    yield made
    metrics._get_stats.cache_clear()


def test_the_documentation_lists_every_metric() -> None:
    table = (DOCS / "alerting.md").read_text().partition("## Metrics")[2].partition("## Values")[0]
    listed = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE)
    assert listed == [
        (
            f"compliance.{metric.name}",
            metric.kind,
            " ".join(f"`{tag}`" for tag in ("conn_id", *metric.tags)),
            metric.meaning,
        )
        for metric in metrics.METRICS
    ]


@pytest.mark.parametrize("option", metrics.SWITCHES)
def test_a_value_is_sent_with_its_tags_to_every_backend(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    for stats in _configured(monkeypatch, option):
        metrics.count(metrics.REQUESTS, "c", 2, status="200", operation="cancel")
        assert stats.counters == {"compliance.requests.c.cancel.200": 2}
        assert stats.tags == [{"conn_id": "c", "operation": "cancel", "status": "200"}]


def test_characters_that_backends_refuse_are_replaced(stats: Stats) -> None:
    metrics.count(metrics.BYTES, "a.b:c,d=e f/ü" + "x" * 250)
    (name,) = stats.counters
    assert re.fullmatch(r"compliance\.bytes\.a_b_c_d_e_f__x{40,60}", name)


def test_nothing_is_sent_for_nothing(stats: Stats) -> None:
    metrics.count(metrics.BYTES, "c", 0)
    assert not stats.counters


def test_a_failing_backend_fails_nothing_and_is_logged_once(
    stats: Stats, caplog: pytest.LogCaptureFixture
) -> None:
    stats.error = RuntimeError("The exporter is gone.")
    for _ in range(3):
        metrics.count(metrics.BYTES, "c", 1)
    assert [record.getMessage() for record in caplog.records if record.name == metrics.__name__] == [
        "Metrics can't be sent: RuntimeError: The exporter is gone."
    ]
    stats.error = None
    metrics.count(metrics.BYTES, "c", 1)
    assert stats.counters == {"compliance.bytes.c": 1}


def test_an_invalid_configuration_switches_metrics_off(
    stats: Stats, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "perhaps")
    for _ in range(2):
        metrics.count(metrics.BYTES, "c", 1)
    assert not stats.counters
    assert len([record for record in caplog.records if record.name == metrics.__name__]) == 1


def test_nothing_is_observed_while_metrics_are_off(
    compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in _configured(monkeypatch):
        hook = ComplianceHook()
        assert hook.list_frameworks()
        assert hook.get_conn()._observer is None
        assert not metrics.is_on()


def test_logins_are_counted_by_outcome(stats: Stats) -> None:
    observe = metrics.get_observer("c")
    assert observe
    observe(Observation(tokens.LOGIN, "503", ComplianceServerError("down", status=503), is_retried=True))
    observe(Observation(tokens.LOGIN, "200"))
    observe(Observation(tokens.LOGIN, "400", ComplianceAuthError("wrong")))
    observe(Observation(tokens.LOGIN, "503", ComplianceServerError("down", status=503)))
    observe(Observation(tokens.REFRESH_TOKEN, "200"))
    assert stats.values("logins") == {"succeeded": 1, "refused": 1, "failed": 1}
    assert stats.values("retries") == {"login.503": 1}


def changes(values: list[float]) -> list[float]:
    return [key for key, _ in groupby(values)]


def test_gauges_follow_the_waits_of_a_poller(stats: Stats) -> None:
    service = PolledService()
    first, second = service.job("1", s10=COMPLETED), service.job("2", s40=COMPLETED)
    service.poll_seconds = 0.0
    hook, kind = service.hook(), service.kind()

    async def wait(*ids: str) -> None:
        async with Subscription(hook, kind, ids, 5.0) as updates:
            for _ in ids:
                await updates.get()

    async def leave(identifier: str) -> None:
        async with Subscription(hook, kind, [identifier], 5.0):
            await asyncio.sleep(7.0)

    async def scenario() -> None:
        await asyncio.gather(wait(first, second), wait(second))
        await leave(service.job("3"))

    virtual_time.run(scenario())
    gauges = {name.removeprefix("compliance."): each for name, each in stats.gauges.items()}
    assert {name.partition(".")[2] for name in gauges} == {"c.job.triggerer"}
    assert changes(gauges["waiters.c.job.triggerer"]) == [2, 0, 1, 0]
    assert changes(gauges["pending.c.job.triggerer"]) == [2, 1, 0, 1, 0]
    assert max(gauges["oldest_pending.c.job.triggerer"]) == pytest.approx(35, abs=5)
    assert set(gauges["poll_lag.c.job.triggerer"]) == {0}
    assert all(values[-1] == 0 for values in gauges.values())


def test_a_slow_poll_makes_the_next_ones_late(stats: Stats) -> None:
    service = PolledService()
    first, second = service.job("1", s20=COMPLETED), service.job("2", s20=COMPLETED)
    service.poll_seconds = 7.0
    hook, kind = service.hook(), service.kind()

    async def scenario() -> None:
        async with Subscription(hook, kind, [first], 5.0) as updates:
            await asyncio.sleep(2.5)  # while the first is polled
            updates.add([second])
            await updates.get()

    virtual_time.run(scenario())
    assert 4 <= max(stats.gauges["compliance.poll_lag.c.job.triggerer"]) <= 7


def test_a_retried_ingest_counts_each_document_once(
    compliance_service: Emulator, stats: Stats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_samples(tmp_path / "in", pdfs=3, docx=0, pages=0)
    options: dict[str, Any] = {
        "destination": f"file://{tmp_path}/out/",
        "poll_interval": 0.1,
        "max_failed": 1.0,
    }
    attempts = Attempts()

    def run() -> Any:
        task = ComplianceIngestOperator(task_id="t", sources=f"file://{tmp_path}/in/", **options)
        return attempts.run(task)

    def written() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "out").glob("*.txt"))

    with monkeypatch.context() as patch:
        patch.setattr(
            Checkpoint, "publish", AsyncMock(side_effect=ComplianceStorageError("The store is full."))
        )
        compliance_service.fail_jobs(match="exit-plan-001.pdf", times=2)
        with pytest.raises(ComplianceStorageError):
            run()
    assert not stats.values("documents")  # there is no manifest
    run()
    assert stats.values("documents") == {"completed": 2, "failed": 1}
    assert stats.values("failures") == {"failed": 1}
    run()
    assert stats.values("documents") == {"completed": 3, "failed": 1}
    run()
    assert stats.values("documents") == {"completed": 3, "failed": 1}
    assert stats.counters["compliance.bytes.compliance_default"] == (size := written())
    write_samples(tmp_path / "in", pdfs=1, docx=0, pages=0, seed=1)  # another one of the same name
    run()
    assert stats.values("documents") == {"completed": 4, "failed": 1}
    assert stats.counters["compliance.bytes.compliance_default"] > size


def test_a_retried_assessment_counts_each_verdict_once(
    compliance_service: Emulator, stats: Stats, tmp_path: Path
) -> None:
    uuids = [completed(compliance_service, text=text) for text in ("An exit plan.", "Nothing.")]
    attempts = Attempts()

    def run() -> Any:
        task = ComplianceAssessOperator(
            task_id="t", documents=uuids, frameworks="DORA", destination=f"file://{tmp_path}/out/",
            poll_interval=0.1, max_failed=1.0,
        )  # fmt: skip
        return attempts.run(task)

    compliance_service.fail("submit_assessment", status=422, times=1)
    first = run()
    assert stats.values("assessments") == {"completed": 1, "failed": 1}
    assert stats.values("failures") == {"rejected": 1}
    verdicts = Counter(next(iter(first["categories"].values())))
    assert stats.values("verdicts") == {name.lower(): number for name, number in verdicts.items()}
    second = run()
    assert stats.values("assessments") == {"completed": 2, "failed": 1}
    verdicts = Counter(next(iter(second["categories"].values())))
    assert stats.values("verdicts") == {name.lower(): number for name, number in verdicts.items()}


def test_a_category_that_the_service_has_invented_is_other(
    compliance_service: Emulator, stats: Stats, tmp_path: Path
) -> None:
    results = [{"id": 1, "name": "a", "category": "MISSING"}]
    results += [{"id": 2 + n, "name": f"c{n}", "category": f"NEW-{n}"} for n in range(3)]
    compliance_service.fail("get_assessment_results", status=200, body=results, times=None)
    task = ComplianceAssessOperator(
        task_id="t", documents=[completed(compliance_service)], frameworks="DORA",
        destination=f"file://{tmp_path}/out/", poll_interval=0.1,
    )  # fmt: skip
    Attempts().run(task)
    assert stats.values("verdicts") == {"missing": 1, "other": 3}


def test_operators_for_one_document_count_it_once(
    compliance_service: Emulator, stats: Stats, tmp_path: Path
) -> None:
    write_samples(tmp_path, pdfs=1, docx=0, pages=0)
    (file,) = tmp_path.glob("*.pdf")

    def submit(**options: Any) -> str:
        task = ComplianceSubmitFileOperator(task_id="t", file=str(file), poll_interval=0.1, **options)
        return str(Attempts().run(task))

    submit()
    assert stats.values("documents") == {"submitted": 1}
    uuid = submit(wait_for_completion=True)
    assert stats.values("documents") == {"submitted": 1, "completed": 1}
    compliance_service.fail_jobs(times=1)
    with pytest.raises(ComplianceJobError):
        submit(wait_for_completion=True)
    assert stats.values("documents") == {"submitted": 1, "completed": 1, "failed": 1}
    assert stats.values("failures") == {"failed": 1}
    payload = {"contentUuid": uuid, "framework": "DORA"}
    Attempts().run(ComplianceSubmitAssessmentOperator(task_id="t", payload=payload))
    assert stats.values("assessments") == {"submitted": 1}
    destination = f"file://{tmp_path}/out.txt"
    Attempts().run(ComplianceContentToObjectStorageOperator(task_id="t", uuid=uuid, destination=destination))
    size = (tmp_path / "out.txt").stat().st_size
    assert stats.counters["compliance.bytes.compliance_default"] == size
    assert sum(stats.values("documents").values()) == 3
    # Nor do the gauges of a worker replace those of the triggerer.
    assert {name.partition(".compliance_default.")[2] for name in stats.gauges} == {"job.worker"}
