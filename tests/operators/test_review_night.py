"""The review of a night's findings: parameters, names, mapping, and the code of its guide."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.support.human_in_the_loop", reason="human in the loop is in Airflow 3.1+")

from airflow.providers.common.compat.sdk import DAG

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.nights.review.grouping import group_findings
from airflow_provider.operators import feedback
from airflow_provider.operators.feedback import ComplianceReviewAssessmentOperator
from airflow_provider.operators.framework import ComplianceListFrameworksOperator
from tests.operators.hitl import RESULTS, FakeHitl, Made, sent
from tests.support.attempts import StateStore

ROWS = [
    {
        "night": "2026-03-01T00:00:00+00:00",
        "source": "s3://in/cloud.pdf",
        "framework": "DORA",
        "criterion": f"D-{row['id']}",
        "title": row["name"],
        "response_id": row["id"],
        "changed_from": None,
        "cell": "c1",
        **row,
    }
    for row in RESULTS
]


def table(path: Path, rows: Any = ROWS) -> str:
    (path / "findings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file://{path}/findings.jsonl"


def made(findings: Any, **kwargs: Any) -> Made:
    return Made(results=None, findings=findings, **{"only": "insufficient", **kwargs})


def form(hitl: FakeHitl) -> dict[str, Any]:
    assert hitl.form is not None
    return hitl.form


@pytest.mark.usefixtures("service")
def test_every_form_says_how_many_findings_of_the_night_no_form_shows(hitl: FakeHitl, tmp_path: Path) -> None:
    (only,) = group_findings(table(tmp_path), only="insufficient", limit=1)
    hitl.run(made(only), {})
    assert "not on the form: 1 of this night, which no form shows" in form(hitl)["body"]


@pytest.mark.usefixtures("service")
def test_form_about_documents_of_two_shards_links_to_their_pages(hitl: FakeHitl, tmp_path: Path) -> None:
    tables = []
    for number, row in enumerate(ROWS[:2]):
        (folder := tmp_path / str(number)).mkdir()
        tables.append(table(folder, [{**row, "source": f"s3://in/{number}.pdf", "category": "MISSING"}]))
    hitl.run(made(tables), {})
    for number in range(2):
        assert f"?source=s3%3A%2F%2Fin%2F{number}.pdf>)" in form(hitl)["body"]
    assert "[Report](" in form(hitl)["body"]


@pytest.mark.parametrize("given", [{"results": []}, {"assessment_id": "a"}])
def test_findings_stand_alone(given: dict[str, Any]) -> None:
    with pytest.raises(exc.ComplianceInputError, match="either assessment_id or results or findings"):
        ComplianceReviewAssessmentOperator(task_id="t", findings="u", **given)


def test_the_document_and_the_framework_are_those_of_the_rows(
    service: Emulator, hitl: FakeHitl, tmp_path: Path
) -> None:
    decision, _ = hitl.run(made(table(tmp_path)), {1: ("SUFFICIENTLY_REGULATED", "Clause 9.")})
    assert form(hitl)["subject"] == (
        "cloud.pdf, DORA: 1 missing, 1 not sufficiently regulated (night of 1 Mar)"
    )
    assert "Source: s3" in form(hitl)["body"]
    assert [name for name in form(hitl)["params"] if name.startswith("c")] == ["category_1", "category_2"]
    assert sent(service) == [("e-1", 1, "SUFFICIENTLY_REGULATED", "Clause 9.")]
    about = {name: decision[name] for name in ("document", "framework", "criterion", "source", "cell")}
    assert about == {
        "document": "cloud.pdf",
        "framework": "DORA",
        "criterion": "D-1",
        "source": "s3://in/cloud.pdf",
        "cell": "c1",
    }


def test_findings_of_another_account_are_not_asked_about(
    service: Emulator, hitl: FakeHitl, tmp_path: Path
) -> None:
    uri = table(tmp_path, [{**row, "account": "0" * 16} for row in ROWS])
    with pytest.raises(exc.ComplianceInputError, match="the finding on 'D-1', and 1 more"):
        hitl.run(made(uri), {1: ("SUFFICIENTLY_REGULATED", "Clause 9.")})
    assert hitl.form is None
    assert service.count() == 0


@pytest.mark.parametrize("is_night", [True, False])
def test_an_answer_is_not_sent_to_an_account_that_the_connection_has_got_since_the_question(
    service: Emulator, hitl: FakeHitl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_night: bool
) -> None:
    account = ComplianceHook().account_digest
    uri = table(tmp_path, [{**row, "account": account} for row in ROWS])
    hitl.die_while_waiting(made(uri) if is_night else Made())
    connection = service.connection()
    connection["extra"]["idp_subject"] = "bob"
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    with pytest.raises(exc.ComplianceInputError, match="another account"):
        hitl.run(made(uri) if is_night else Made(), {1: ("SUFFICIENTLY_REGULATED", "Clause 9.")})
    assert sent(service) == []


GOOD, MISSING = "SUFFICIENTLY_REGULATED", "MISSING"
CHANGED = [{**ROWS[0], "category": GOOD}, *ROWS[1:]]  # the response keeps its ID


def test_an_answer_without_decisions_replaces_a_form_that_expired(
    service: Emulator, hitl: FakeHitl, tmp_path: Path
) -> None:
    (tmp_path / "_nights/assess/task-00/2026-03-01").mkdir(parents=True)
    review = made(table(tmp_path), defaults="Decide later", response_timeout=timedelta(hours=1))
    expired = hitl.run(review, None)
    (path,) = (tmp_path / "decisions").iterdir()
    assert [json.loads(line)["decision"] for line in path.read_text().splitlines()] == ["expired"] * 2
    hitl.response = None  # the task is cleared, and answered
    answered = hitl.run(review, {})
    assert [row["decision"] for row in (*expired, *answered)] == ["expired"] * 2 + ["none"] * 2
    (new,) = set((tmp_path / "decisions").iterdir()) - {path}  # a table is never written again
    assert [json.loads(line)["decision"] for line in new.read_text().splitlines()] == ["none"] * 2


@pytest.mark.parametrize("is_grouped", [True, False])
def test_an_answer_is_about_the_verdict_that_the_form_showed(
    service: Emulator, hitl: FakeHitl, tmp_path: Path, is_grouped: bool
) -> None:
    def review() -> Made:
        uri = f"file://{tmp_path}/findings.jsonl"
        return made(group_findings(uri, only="all")[0] if is_grouped else uri, only="all")

    table(tmp_path)
    hitl.die_while_waiting(review())
    table(tmp_path, CHANGED)  # the night is cleared while the form is open
    decided = hitl.run(review(), {1: (MISSING, "Indeed."), 2: ("MISSING", "Not a word.")})
    assert [(row["category_before"], row["outcome"]) for row in decided] == [
        (MISSING, "recorded"),
        ("NOT_SUFFICIENTLY_REGULATED", "sent"),
        (GOOD, "recorded"),
    ]
    assert [row[1] for row in sent(service)] == [2]
    if is_grouped:  # the new verdict has a form of its own, in another mapped task
        _, form = group_findings(f"file://{tmp_path}/findings.jsonl", only="all")
        hitl.store, hitl.form, hitl.response, hitl.tries, hitl.map_index = StateStore(), None, None, 0, 1
        (decision,) = hitl.run(made(form), {1: (GOOD, "In clause 9.")})
        assert (decision["category_before"], decision["outcome"]) == (GOOD, "sent")
        assert list(hitl.form["params"]) == ["agree_with_the_rest", "category_1", "rationale_1"]  # type: ignore[index] # it is there
    else:
        with pytest.raises(exc.ComplianceInputError, match="Start a new DAG run"):
            hitl.run(review())


def test_the_code_of_the_guide_makes_a_mapped_review() -> None:
    page = (Path(__file__).parents[2] / "docs" / "review.md").read_text()
    section = page[page.index("## Review a whole night") :]
    (code, *_) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    with DAG("example", schedule=None) as dag:
        names = {"assess": ComplianceListFrameworksOperator(task_id="assess")}
        exec(compile(code, "review.md", "exec"), names)
    assert dag.task_ids == ["assess", "group", "review"]
    assert dag.get_task("review").is_mapped


def test_the_guide_s_import_is_the_function() -> None:
    assert feedback.group_findings is group_findings
    with pytest.raises(AttributeError, match="nothing_else"):
        _ = feedback.nothing_else
