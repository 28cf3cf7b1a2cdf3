"""What the Airflow layer promises beside waiting: templates, mapping, links, older versions."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, XCom

from airflow_provider.emulator import Emulator
from airflow_provider.operators import assessment, framework
from airflow_provider.operators import content as operators
from airflow_provider.operators.links import ComplianceJobLink, ComplianceReportLink, PushedLink
from airflow_provider.provider_info import get_provider_info
from airflow_provider.runtime import compat
from airflow_provider.sensors.assessment import ComplianceAssessmentSensor
from airflow_provider.sensors.content import ComplianceContentSensor

CLASSES = [
    operators.ComplianceSubmitFileOperator,
    operators.ComplianceSubmitUrlOperator,
    operators.ComplianceRefreshContentOperator,
    operators.ComplianceCancelContentOperator,
    ComplianceContentSensor,
    assessment.ComplianceGetAssessmentResultsOperator,
    assessment.ComplianceCancelAssessmentOperator,
    ComplianceAssessmentSensor,
    framework.ComplianceListCriteriaOperator,
    framework.ComplianceListFrameworksOperator,
]
SUBJECTS = {
    "file": "f.pdf", "url": "https://example.com", "uuid": "u", "assessment_id": "7", "framework_id": "2",
}  # fmt: skip


def make(kind: Any, **kwargs: Any) -> Any:
    given = {name: value for name, value in SUBJECTS.items() if name in inspect.signature(kind).parameters}
    return kind(task_id="t", **given, **kwargs)


@pytest.mark.parametrize("kind", CLASSES)
def test_mapped_tasks_bear_a_useful_name(kind: Any) -> None:
    task = make(kind)
    assert task.title.removeprefix("#") in (*SUBJECTS.values(), task.conn_id)
    assert make(kind, map_index_template="{{ mine }}").map_index_template == "{{ mine }}"


def own_parameters(kind: type[Any]) -> set[str]:
    """Return the parameters that this provider's classes add to those of Airflow."""
    own: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.startswith("airflow_provider.") and "__init__" in vars(base):
            own |= set(inspect.signature(vars(base)["__init__"]).parameters) - {"self", "kwargs"}
    return own


ALL_CLASSES = [
    getattr(module, name)
    for kind in ("operators", "sensors", "transfers")
    for group in get_provider_info()[kind]
    for module in map(import_module, group.get("python-modules") or [group["python-module"]])
    for name in vars(module)
    if name.startswith("Compliance") and getattr(module, name).__module__ == module.__name__
]


@pytest.mark.parametrize("kind", ALL_CLASSES)
def test_every_parameter_is_described(kind: Any) -> None:
    described = set(re.findall(r":param (\w+):", kind.__doc__))
    own = own_parameters(kind)
    assert own <= described
    # Of Airflow's base classes only what has a default that surprises, or is about the form of a review.
    assert described - own <= {"timeout", "body", "defaults", "assigned_users", "notifiers"}


@pytest.mark.parametrize(
    ("given", "map_index", "shown"),
    [(None, 0, "{{ task.title }}"), ("{{ mine }}", 0, "{{ mine }}"), (None, -1, None)],
)
def test_a_mapped_task_bears_that_name_unless_the_author_gave_another(
    service: Emulator, given: str | None, map_index: int, shown: str | None
) -> None:
    context: Any = {"map_index_template": given, "ti": SimpleNamespace(map_index=map_index)}
    make(operators.ComplianceCancelContentOperator).execute(context)
    assert context["map_index_template"] == shown


@pytest.mark.parametrize(
    ("url", "title"),
    [
        ("https://example.com/" + "x" * 300, "https://example.com/" + "x" * 79 + "…"),
        ("https://user:secret@example.com/a", "https://redacted-04f8996da763@example.com/a"),
        ("a\nb", "a b"),
        ("7", "#7"),
    ],
)
def test_a_name_is_short_and_plain_and_has_no_secret(url: str, title: str) -> None:
    """Airflow stores 250 characters, and native templates would make a number of a number."""
    assert operators.ComplianceSubmitUrlOperator(task_id="t", url=url).title == title


def test_the_name_is_made_of_what_templates_gave() -> None:
    """Airflow 3.0 has the task in its context as it was before."""
    with DAG("d", schedule=None):
        page = operators.ComplianceSubmitUrlOperator(task_id="page", url="https://example.com")
        before = ComplianceContentSensor(task_id="wait", uuid=page.output)
    task = before.prepare_for_execution()
    task.uuid = "u1"
    context: Any = {"task": before, "ti": SimpleNamespace(map_index=0)}
    compat.apply_map_index_template(task, context)
    shown = task.get_template_env().from_string(context["map_index_template"]).render(context)
    assert shown == "u1"


def test_many_jobs_are_counted_in_the_name() -> None:
    task = ComplianceContentSensor(task_id="t", uuid=["a", "b", "a"])
    assert task.title == "2 jobs"


@pytest.mark.parametrize(
    ("link", "key"),
    [(ComplianceJobLink(), "compliance_job_url"), (ComplianceReportLink(), "compliance_report_url")],
    ids=["job", "report"],
)
def test_the_link_is_what_was_pushed(monkeypatch: pytest.MonkeyPatch, link: PushedLink, key: str) -> None:
    asked: list[Any] = []

    def get_value(**kwargs: Any) -> str | None:
        asked.append(kwargs)
        return "https://console.example.com/1" if len(asked) < 2 else None

    monkeypatch.setattr(XCom, "get_value", get_value)
    assert link.get_link(None, ti_key="key") == "https://console.example.com/1"
    assert asked == [{"ti_key": "key", "key": key}]
    assert link.get_link(None, ti_key="key") == ""
