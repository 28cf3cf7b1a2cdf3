"""The review of an assessment: asking, and what answers mean."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tests.support.human_in_the_loop", reason="human in the loop is in Airflow 3.1+")

from airflow.providers.common.compat.sdk import DAG, AirflowFailException
from airflow.sdk import Param

from airflow_provider import exceptions as exc
from airflow_provider.client.findings import Finding
from airflow_provider.emulator import Emulator
from airflow_provider.operators.feedback import ComplianceReviewAssessmentOperator
from airflow_provider.runtime.provenance import read_provenance
from tests.operators.hitl import RESULTS, FakeHitl, Instance, Made, sent

# -- asking


def test_the_form_has_two_options_and_fields_that_airflow_takes(service: Emulator, hitl: FakeHitl) -> None:
    hitl.run(Made(), "Decide later")
    assert hitl.form is not None
    assert hitl.form["options"] == ["Send feedback", "Decide later"]
    fields = hitl.form["params"]
    assert list(fields)[:3] == ["agree_with_the_rest", "category_1", "rationale_1"]
    assert len(fields) == 7
    for field in fields.values():
        Param(field["value"], schema=field["schema"]).resolve()
    assert "Nothing was found" in hitl.form["body"]


def test_an_assessment_s_results_are_fetched(service: Emulator, hitl: FakeHitl) -> None:
    made = service.add_assessment({"text": "personal data", "frameworkId": 2})
    first = made["results"][0]
    number = first["assessmentResponseId"]
    review = Made(results=None, assessment_id=made["uuid"])
    hitl.run(review, {number: (first["category"], "Agreed.")})
    assert sent(service) == [("e-1", number, first["category"], "Agreed.")]
    assert hitl.form is not None
    assert hitl.form["subject"].startswith(f"assessment {made['uuid']}, framework 2: ")


@pytest.mark.parametrize("how", ["text", "repr", "file", "uri"])
def test_results_may_be_a_text_or_the_address_of_a_file(
    service: Emulator, hitl: FakeHitl, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"results": RESULTS}))
    given = {"text": path.read_text(), "repr": repr(RESULTS), "file": str(path), "uri": f"file://{path}"}[how]
    hitl.run(Made(results=given), {1: ("MISSING", "Agreed.")})
    assert len(sent(service)) == 1
    assert hitl.form is not None
    assert hitl.form["subject"].startswith(f"results{'.json' if how in ('file', 'uri') else ''}: ")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"results": "None"}, "Missing results of an assessment"),
        ({"results": "{'a': "}, "a string that is not JSON"),
        ({"results": "/nowhere/results.json"}, "can't be read"),
        ({"results": {"status": "?"}}, "Override findings_of"),
        ({"results": None, "assessment_id": "None"}, "Missing assessment id"),
        ({"limit": "few"}, "limit must be a whole number"),
    ],
)
def test_an_invalid_parameter_ends_the_task(
    service: Emulator, hitl: FakeHitl, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(exc.ComplianceError, match=message) as caught:
        hitl.run(Made(**given))
    assert isinstance(caught.value, AirflowFailException)
    assert hitl.form is None


def test_a_limit_leaves_out_the_rest_and_says_so(service: Emulator, hitl: FakeHitl) -> None:
    hitl.run(Made(limit="2"), "Decide later")
    assert hitl.form is not None
    assert [name for name in hitl.form["params"] if name[0] == "c"] == ["category_1", "category_2"]
    assert "not on the form: 1 beyond the limit" in hitl.form["body"]


def test_a_subclass_reads_results_of_another_shape(service: Emulator, hitl: FakeHitl) -> None:
    class Other(ComplianceReviewAssessmentOperator):
        def findings_of(self, results: Any) -> list[Finding]:
            return [Finding(int(number), title) for number, title in results["x"].items()]

    hitl.run(Made(Other, results={"x": {"3": "Other"}}), {3: ("MISSING", "So.")})
    assert sent(service) == [("e-1", 3, "MISSING", "So.")]


def test_what_was_typed_is_recorded_whichever_button_is_clicked(
    service: Emulator, hitl: FakeHitl, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_in = hitl.answer

    def decide_later(given: Any) -> dict[str, Any]:
        return fill_in(given) | {"chosen_options": ["Decide later"]}

    monkeypatch.setattr(hitl, "answer", decide_later)
    decided = hitl.run(Made(), {1: ("SUFFICIENTLY_REGULATED", "Clause 9.")})
    assert sent(service) == []
    assert {row["outcome"] for row in decided} == {"recorded"}
    assert [(row["decision"], row["rational_feedback"]) for row in decided] == [
        ("changed", "Clause 9."), ("none", ""), ("none", ""),
    ]  # fmt: skip


HOSTILE = [
    "](https://evil.example) ![x](https://evil.example/x.png)",
    "<script>alert(1)</script>",
    "in/\udce4\ud800",
    "a\0b",
    "\u202egnp.exe\u200b",
    "# Heading\n\n---\n> quote\r\n| a | b |",
    "https://evil.example www.evil.example a@evil.example",
    "{{ ti.xcom_pull() }}",
    "category_1",
    "&lt;b&gt; &#106;avascript:",
    "```\ncode\n```",
    "$x^2$ ~~a~~ **b** __c__",
    "\u2028\u2029\x1b[31m",
    "word " * 20_000,
    "x" * 100_000,
]


def test_a_form_of_hostile_texts_is_shown_answered_and_sent(service: Emulator, hitl: FakeHitl) -> None:
    names = ("name", "code", "category", "rationale", "fileName", "framework", "passage", "context")
    results = [{"id": number, **dict.fromkeys(names, text)} for number, text in enumerate(HOSTILE, 1)]
    answers: Any = {"rest": "agreed"} | dict.fromkeys((1, 2, 3), ("MISSING", "So."))
    decided = hitl.run(Made(results=results), answers)
    assert sent(service) == [("e-1", number, "MISSING", "So.") for number in (1, 2, 3)]
    assert sorted(row["assessment_response_id"] for row in decided) == list(range(1, 16))
    assert hitl.form is not None
    body, fields = hitl.form["body"], hitl.form["params"]
    assert len(body) < 100_000
    assert body.count("\n#### ") == 15
    assert not re.search(r"(?<!\\)[<\[\]!`~$|]|https?:|www\.|[\x00-\x09\x0b-\x1f\u2028\u202e]", body)
    assert len(fields) == 31
    assert max(len(str(field["schema"])) for field in fields.values()) < 2_000


# -- the answer


def test_feedback_is_sent_where_there_is_a_rationale(service: Emulator, hitl: FakeHitl) -> None:
    returned = hitl.run(Made(), {1: ("SUFFICIENTLY_REGULATED", " It is in clause 9. "), 3: (None, "Hm.")})
    assert sent(service) == [
        ("e-1", 1, "SUFFICIENTLY_REGULATED", "It is in clause 9."),
        ("e-1", 3, None, "Hm."),
    ]
    assert hitl.response is not None
    assert returned[0] == {
        "document": "results",
        "framework": "",
        "criterion": "Exit",
        **dict.fromkeys(("source", "night", "cell", "findings", "framework_fingerprint", "text_sha256"), ""),
        "decision": "changed",
        "category_before": "MISSING",
        "category_after": "SUFFICIENTLY_REGULATED",
        "answered_by": "ada",
        "decided_at": hitl.response["responded_at"].isoformat(),
        "expert_id": "e-1",
        "rational_feedback": "It is in clause 9.",
        "assessment_response_id": 1,
        "category_feedback": "SUFFICIENTLY_REGULATED",
        "outcome": "sent",
        **read_provenance({"ti": Instance()}),
    }
    assert [(row["decision"], row["category_after"]) for row in returned[1:]] == [
        ("none", "NOT_SUFFICIENTLY_REGULATED"),
        ("commented", "SUFFICIENTLY_REGULATED"),
    ]


class MappedExpert(ComplianceReviewAssessmentOperator):
    def expert_of(self, user: dict[str, str]) -> str:
        return f"{user['id']}@example.com"


@pytest.mark.parametrize(
    ("kind", "given", "expert"),
    [(None, "e-2", "e-2"), (None, "None", "ada"), (MappedExpert, None, "ada@example.com")],
)
def test_the_expert_is_the_one_who_is_named_or_who_answers(
    service: Emulator, hitl: FakeHitl, kind: Any, given: str | None, expert: str
) -> None:
    hitl.run(Made(kind, expert_id=given), {1: ("MISSING", "So.")})
    assert sent(service)[0][0] == expert


def test_an_expert_without_an_id_is_an_error_before_anything_is_sent(
    service: Emulator, hitl: FakeHitl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MappedExpert, "expert_of", lambda self, user: " ")
    with pytest.raises(exc.ComplianceInputError, match="ID of the expert is missing"):
        hitl.run(Made(MappedExpert, expert_id=None), {1: ("MISSING", "So.")})
    assert sent(service) == []


def test_a_forgotten_rationale_does_not_fail_the_task(
    service: Emulator, hitl: FakeHitl, caplog: pytest.LogCaptureFixture
) -> None:
    decided = hitl.run(Made(log_here=True), {1: ("MISSING", "Agreed."), 2: ("MISSING", None)})
    assert [(row["decision"], row["category_after"], row["outcome"]) for row in decided] == [
        ("commented", "MISSING", "sent"),
        ("changed", "MISSING", "recorded"),
        ("none", "SUFFICIENTLY_REGULATED", "recorded"),
    ]
    assert [row[1] for row in sent(service)] == [1]
    assert "'Audit' is recorded, but not sent: the service needs a rationale" in caplog.text
    assert hitl.form is not None
    assert "The service takes no feedback without a rationale." in hitl.form["body"]
    assert hitl.run(Made()) == decided
    assert hitl.asked == 1


@pytest.mark.parametrize("defaults", ["Decide later", None])
def test_a_form_that_expires_is_recorded_and_asked_again_after_a_clear(
    service: Emulator, hitl: FakeHitl, tmp_path: Path, defaults: str | None
) -> None:
    path = tmp_path / "decisions.jsonl"
    review = Made(defaults=defaults, destination=str(path))
    with nullcontext() if defaults else pytest.raises(Exception, match="time is up"):
        hitl.run(review)
    for row in map(json.loads, path.read_text().splitlines()):
        assert (row["decision"], row["answered_by"], row["expert_id"]) == ("expired", "", "")
        assert row["outcome"] == "recorded"
        assert row["decided_at"]
    returned = hitl.run(review, {1: ("MISSING", "After a clear.")})
    assert [row["decision"] for row in returned] == ["commented", "none", "none"]
    assert (hitl.asked, len(sent(service))) == (2, 1)


@pytest.mark.parametrize(("defaults", "asked"), [("Decide later", 0), (None, 1)])
def test_dag_test_waits_for_an_answer_only_without_defaults(
    service: Emulator, hitl: FakeHitl, caplog: pytest.LogCaptureFixture, defaults: str | None, asked: int
) -> None:
    dag_run = SimpleNamespace(triggering_user_name="dag_test")
    hitl.run(Made(log_here=True, defaults=defaults), "Decide later", dag_run=dag_run)
    assert hitl.asked == asked
    assert "--mark-success-pattern" in caplog.text


def test_a_mapped_review_may_have_a_timeout() -> None:
    """Airflow looks for each parameter of `partial` in the classes, and 3.1's own does not know this one."""
    with DAG("d", schedule=None):
        partial = ComplianceReviewAssessmentOperator.partial(task_id="t", response_timeout=timedelta(days=7))
        mapped: Any = partial.expand(results=[RESULTS])
    assert mapped.partial_kwargs["response_timeout"] == timedelta(days=7)
