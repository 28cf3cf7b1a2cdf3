"""What every operator, sensor and transfer inherits: the connection, the hook class, waiting, durability."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators import assessment, content, feedback, framework
from airflow_provider.operators.base import ComplianceBaseOperator, entry_point
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.runtime import compat
from airflow_provider.sensors.assessment import ComplianceAssessmentSensor
from airflow_provider.sensors.content import ComplianceContentSensor
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from airflow_provider.waiting.frameworks.watcher import FrameworkPoller
from tests.support.attempts import Attempts, TaskInstance, heard
from tests.support.jobs import completed

PAGE = "https://example.com/privacy-policy"
PAYLOAD = {"text": "Auditors may look at everything.", "frameworkId": 1}


class OurHook(ComplianceHook):
    """A hook of a deployment's own."""


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """The emulator; only `OurHook` may talk to it."""
    init = ComplianceHook.__init__

    def refuse_default(self: ComplianceHook, *args: Any, **kwargs: Any) -> None:
        assert isinstance(self, OurHook), "the default hook class was used"
        init(self, *args, **kwargs)

    monkeypatch.setattr(ComplianceHook, "__init__", refuse_default)
    compliance_service.configure(jobs="polls:1")
    return compliance_service


Parameters = Callable[[Emulator, Path], dict[str, Any]]
WAITING = {"wait_for_completion": True, "poll_interval": 0.05}
CASES: list[tuple[type[ComplianceBaseOperator], Parameters]] = [
    (content.ComplianceSubmitFileOperator, lambda _, path: {"file": _pdf(path), **WAITING}),
    (content.ComplianceRefreshContentOperator, lambda service, _: {"uuid": completed(service), **WAITING}),
    (content.ComplianceCancelContentOperator, lambda service, _: {"uuid": completed(service)}),
    (assessment.ComplianceSubmitAssessmentOperator, lambda *_: {"payload": PAYLOAD, **WAITING}),
    (
        assessment.ComplianceGetAssessmentResultsOperator,
        lambda service, _: {"assessment_id": _assessed(service)},
    ),
    (assessment.ComplianceCancelAssessmentOperator, lambda service, _: {"assessment_id": _assessed(service)}),
    (framework.ComplianceListFrameworksOperator, lambda *_: {}),
    (framework.ComplianceListCriteriaOperator, lambda *_: {"framework_id": 1}),
    (
        feedback.ComplianceSubmitFeedbackOperator,
        lambda *_: {"expert_id": "ada", "rational_feedback": "Clause 2 covers it."},
    ),
    (ComplianceContentSensor, lambda service, _: {"uuid": completed(service), "poll_interval": 0.05}),
    (
        ComplianceAssessmentSensor,
        lambda service, _: {"assessment_id": _assessed(service), "poll_interval": 0.05},
    ),
    (
        ComplianceContentToObjectStorageOperator,
        lambda service, path: {"uuid": completed(service), "destination": f"file://{path}/texts/"},
    ),
    (
        ComplianceIngestOperator,
        lambda _, path: {
            "sources": [_pdf(path)],
            "destination": f"file://{path}/out/",
            "poll_interval": 0.05,
        },
    ),
]


def _pdf(path: Path) -> str:
    from airflow_provider.emulator.samples import write_samples

    write_samples(path / "in", pdfs=1, docx=0, pages=0)
    return str(next((path / "in").glob("*.pdf")))


def _assessed(service: Emulator) -> str:
    return str(service.add_assessment(PAYLOAD)["uuid"])


@pytest.mark.parametrize(("kind", "parameters"), CASES, ids=[kind.__name__ for kind, _ in CASES])
def test_the_hook_class_of_a_subclass_is_used_everywhere(
    service: Emulator,
    attempts: Attempts,
    tmp_path: Path,
    kind: type[ComplianceBaseOperator],
    parameters: Parameters,
) -> None:
    ours: Any = type(f"Our{kind.__name__}", (kind,), {"hook_class": OurHook})
    given = parameters(service, tmp_path)
    attempts.run(ours(task_id="t", **given))
    if "poll_interval" in given:
        attempts.clear()
        attempts.run(ours(task_id="t", **given, deferrable=True))
        assert {row["hook_class"] for row in attempts.deferrals} <= {f"{__name__}.OurHook"}
        # Where everything is completed at the first poll, there is nothing to defer for.
        assert attempts.deferrals or kind in (
            ComplianceContentToObjectStorageOperator,
            ComplianceIngestOperator,
        )


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("feedback.ComplianceReviewAssessmentOperator", {"assessment_id": 1}),
        ("night.ComplianceCloseNightOperator", {"destination": "/x/"}),
    ],
)
def test_review_and_closing_use_it_too(path: str, given: dict[str, Any]) -> None:
    module, _, name = path.partition(".")
    kind: Any = getattr(import_module(f"airflow_provider.operators.{module}"), name)
    if name.startswith("ComplianceReview") and not compat.HAS_FORMS:
        pytest.skip("this Airflow has no human in the loop")
    ours: Any = type("Ours", (kind,), {"hook_class": OurHook})
    assert isinstance(ours(task_id="t", **given).hook, OurHook)


def test_the_framework_watcher_uses_it_too(service: Emulator) -> None:
    poller = FrameworkPoller("compliance_default", 1.0, hook_class=f"{__name__}.OurHook")

    async def first() -> Any:
        async with aclosing(poller.stream()) as snapshots:
            return await anext(snapshots)

    assert asyncio.run(first()).catalog.fingerprints


def test_default_args_reach_every_parameter() -> None:
    defaults = {"conn_id": "other", "poll_interval": 7, "timeout": 8, "deferrable": True}
    with DAG("d", schedule=None, default_args=defaults):
        submit = content.ComplianceSubmitUrlOperator(task_id="submit", url=PAGE)
        sensor = ComplianceContentSensor(task_id="sensor", uuid="u")
        transfer = ComplianceContentToObjectStorageOperator(task_id="to", uuid="u", destination="file:///x/")
        listing = framework.ComplianceListFrameworksOperator(task_id="list")
    assert (submit.conn_id, submit.poll_interval, submit.timeout) == ("other", 7, 8)
    assert submit.deferrable is True
    assert (sensor.conn_id, sensor.poke_interval, sensor.deferrable) == ("other", 7, True)
    assert (transfer.conn_id, transfer.timeout, listing.conn_id) == ("other", 8, "other")


def test_a_payload_can_be_a_file(compliance_service: Emulator, attempts: Attempts, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text(
        json.dumps({"text": "Auditors of {{ params.who }}", "frameworkId": 1})
    )
    with DAG("d", schedule=None, template_searchpath=str(tmp_path)):
        task = assessment.ComplianceSubmitAssessmentOperator(task_id="t", payload="payload.json")
    task.resolve_template_files()
    context: Any = {"params": {"who": "Acme"}}
    task.render_template_fields(context)
    identifier = attempts.run(task)
    assert compliance_service.assessments()[0]["uuid"] == identifier


def test_airflow_passes_the_context_by_name(compliance_service: Emulator, attempts: Attempts) -> None:
    context: Any = {"ti": TaskInstance(map_index=3)}
    task = framework.ComplianceListFrameworksOperator(task_id="t")
    assert task.execute(context=context)
    assert context["map_index_template"] == "{{ task.title }}"


def test_a_hook_class_that_no_triggerer_can_import_is_refused_before_the_submit(
    compliance_service: Emulator, attempts: Attempts, tmp_path: Path
) -> None:
    class Local(ComplianceHook):
        """As one that is defined in a DAG file."""

    kind: Any = type("Submit", (content.ComplianceSubmitFileOperator,), {"hook_class": Local})
    task = kind(task_id="t", file=_pdf(tmp_path), wait_for_completion=True, deferrable=True)
    with pytest.raises(exc.ComplianceConfigError, match="can't import the hook class"):
        attempts.run(task)
    assert compliance_service.count("submit_file") == 0


def test_values_inside_a_payload_are_not_files(compliance_service: Emulator, attempts: Attempts) -> None:
    payload = {"text": "x", "frameworkId": 1, "document": "s3://bucket/doc.json", "more": ["a.json"]}
    with DAG("d", schedule=None):
        task = assessment.ComplianceSubmitAssessmentOperator(task_id="t", payload=payload)
    context: Any = {}
    task.render_template_fields(context)
    assert task.payload == payload
    assert attempts.run(task)


class Failing(ComplianceBaseOperator):
    def __init__(self, *, error: Exception, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    @entry_point
    def execute(self, context: Any) -> None:
        self._deep(20)

    def _deep(self, levels: int) -> None:
        if levels:
            self._deep(levels - 1)
        raise self.error


DOWN = exc.ComplianceServerError("Down.", status=503)


@pytest.mark.parametrize(
    ("error", "try_number", "advice"),
    [
        (
            exc.ComplianceConfigError("Wrong."),
            1,
            "A retry would not help. Correct this, then clear the task.",
        ),
        (DOWN, 1, "Airflow tries again."),
        (exc.ComplianceSupersededError.by({"try_number": 2}), 1, "Nothing is to be done."),
        (DOWN, 2, "This was the last attempt: clear the task to try again."),
    ],
)
def test_an_error_is_logged_with_what_to_do(
    error: exc.ComplianceError,
    try_number: int,
    advice: str,
    caplog: pytest.LogCaptureFixture,
    attempts: Attempts,
) -> None:
    attempts.try_number = try_number - 1
    with pytest.raises(exc.ComplianceError):
        attempts.run(heard(Failing(error=error, task_id="t")))
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        f"{error} {advice}"
    ]


def test_an_error_after_a_deferral_is_logged_once(
    compliance_service: Emulator, caplog: pytest.LogCaptureFixture, attempts: Attempts
) -> None:
    compliance_service.configure(jobs="manual")
    task = content.ComplianceSubmitUrlOperator(
        task_id="t", url=PAGE, wait_for_completion=True, deferrable=True, timeout=0.5, poll_interval=0.1
    )
    with pytest.raises(exc.ComplianceJobTimeoutError):
        attempts.run(heard(task))
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len([line for line in lines if line.startswith("Timed out")]) == 1


def test_the_traceback_of_a_non_retryable_error_ends_at_the_operator(attempts: Attempts) -> None:
    with pytest.raises(AirflowFailException) as raised:
        attempts.run(Failing(error=exc.ComplianceInputError("Wrong."), task_id="t"))
    assert "_deep" not in [entry.name for entry in raised.traceback]
    assert raised.value.__suppress_context__


def test_the_traceback_of_a_transient_error_is_whole(attempts: Attempts) -> None:
    with pytest.raises(exc.ComplianceServerError) as raised:
        attempts.run(Failing(error=exc.ComplianceServerError("Down.", status=500), task_id="t"))
    assert "_deep" in [entry.name for entry in raised.traceback]
