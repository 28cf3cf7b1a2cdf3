"""Two nights with a review of many forms in between, answered over Airflow's REST API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator.samples import make_docx
from tests.assess.conftest import read
from tests.deployment.conftest import Service
from tests.deployment.system import Deployment, Run

pytestmark = pytest.mark.deployment

GOOD, MISSING = "SUFFICIENTLY_REGULATED", "MISSING"
DOCUMENTS = ("alder.docx", "brightwater.docx", "cormorant.docx")
REGULATED = "Scope of services. Service description. Location and region. Integrity and confidentiality."
EXIT, AUDIT, INCIDENT = OPEN = ("DORA-30-3-f", "DORA-30-3-e", "DORA-30-2-f")
USER = "Anonymous"
WHY = {EXIT: "Annex 4 has a transition period.", AUDIT: "The master agreement is silent on it, too."}


def start_night(deployment: Deployment, folder: Path, number: int, answered: int) -> Run:
    """Start a night; so many of its forms wait for an answer, the others expire."""
    deployment.wait_for_dag("review_night")
    conf = {
        "sources": [f"file://{folder}/in/{name}" for name in DOCUMENTS],
        "nights": f"file://{folder}/nights/",
        "frameworks": "DORA",
        "answered": answered,
    }
    day = {"dag_run_id": f"night-{number}", "logical_date": f"2026-03-{number:02}T02:00:00Z"}
    deployment.call("POST", "dags/review_night/dagRuns", {**day, "conf": conf})
    return Run(deployment, "review_night", f"night-{number}")


def forms_of(run: Run) -> dict[int, dict[str, Any]]:
    """Return the forms that Airflow has, by map index."""
    found = run.deployment.call("GET", f"{run.path}/hitlDetails", limit=100)["hitl_details"]
    return {each["task_instance"]["map_index"]: each for each in found}


def wait_until_parked(run: Run, *indexes: int) -> None:
    """Wait until forms can be answered."""

    def are_parked() -> bool:
        waiting = [each for each in run.tasks("review") if each["state"] == "awaiting_input"]
        return {each["map_index"] for each in waiting if run.is_parked(each)} >= set(indexes)

    run.deployment.wait_for(are_parked, f"the forms {indexes} of {run.run_id}")


def answer(run: Run, index: int, option: str, **fields: Any) -> None:
    body = {"chosen_options": [option], "params_input": fields}
    run.deployment.call("PATCH", f"{run.path}/taskInstances/review/{index}/hitlDetails", body)


def asked_on(form: dict[str, Any]) -> set[int]:
    """Return the responses that a form has fields for."""
    return {int(name.rpartition("_")[2]) for name in form["params"]}


def names_of(run: Run) -> dict[int, str]:
    return {each["map_index"]: each["rendered_map_index"] for each in run.tasks("review")}


def read_below(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.name: read(str(path)) for path in folder.iterdir()}


def read_decisions(folder: Path) -> list[list[dict[str, Any]]]:
    """Return what reviews have left beside the findings for later nights."""
    return [read(str(path)) for path in (folder / "_assess").rglob("decisions/*.jsonl")]


def test_forms_of_a_night_are_answered_or_expire_and_the_next_night_knows_the_decisions(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    service.configure(jobs="instant")
    (tmp_path / "in").mkdir()
    for name in DOCUMENTS:
        (tmp_path / "in" / name).write_bytes(make_docx(f"Contract {name}.", REGULATED))

    first = start_night(deployment, tmp_path, 1, answered=2)
    wait_until_parked(first, 0, 1)
    forms = deployment.wait_for(
        lambda: found if len(found := forms_of(first)) == len(DOCUMENTS) else {}, "a form for each document"
    )
    names = names_of(first)
    assert sorted(names.values()) == [f"{name}, DORA" for name in DOCUMENTS]
    for index, form in forms.items():
        document = names[index].partition(",")[0]
        assert form["subject"] == f"Review of {document} against DORA"
        assert form["task_instance"]["rendered_map_index"] == names[index]

    rows = read(first.returned("assess")["findings"])
    corrected, refused, expired = (names[index].partition(",")[0] for index in range(3))
    ids = {(Path(row["source"]).name, row["criterion"]): row["response_id"] for row in rows}
    for index, document in enumerate((corrected, refused, expired)):
        assert asked_on(forms[index]) == {ids[document, criterion] for criterion in OPEN}
    wrong, right = ids[corrected, EXIT], ids[corrected, AUDIT]
    answers = {f"category_{wrong}": GOOD, f"rationale_{wrong}": WHY[EXIT], f"rationale_{right}": WHY[AUDIT]}
    answer(first, 0, "Send feedback", **answers)
    answer(first, 1, "No feedback", **{f"rationale_{ids[refused, EXIT]}": "Never sent."})
    assert first.wait_for_end()["state"] == "success"

    assert names_of(first) == names
    assert {index: form["responded_by_user"] for index, form in forms_of(first).items()} == {
        0: {"id": USER, "name": USER},
        1: {"id": USER, "name": USER},
        2: None,
    }
    sent = [
        (
            each["expertId"],
            each["assessmentResponseId"],
            each.get("categoryFeedback"),
            each["rationalFeedback"],
        )
        for each in service.feedback()
    ]
    assert sorted(sent) == sorted([(USER, wrong, GOOD, WHY[EXIT]), (USER, right, MISSING, WHY[AUDIT])])
    decisions = first.returned("review", 0)
    assert {each["criterion"]: (each["decision"], each["outcome"]) for each in decisions} == {
        EXIT: ("changed", "sent"),
        AUDIT: ("commented", "sent"),
    }
    assert {Path(each["source"]).name for each in decisions} == {corrected}
    assert first.returned("review", 1) == first.returned("review", 2) == []
    nights = tmp_path / "nights"
    written = read_below(nights / "dt=2026-03-01/decisions")
    assert {name.partition(".docx-")[0]: rows for name, rows in written.items()} == {
        Path(document).stem: decisions if document == corrected else []
        for document in (corrected, refused, expired)
    }
    assert read_decisions(nights / "dt=2026-03-01") == [decisions]

    # A clear of the assessment after the answers sees what the first attempt saw.
    attempts = first.tasks("assess")[0]["try_number"]
    first.clear("assess")
    first.wait_for("success", "assess", tries=attempts + 1)
    assert read(first.returned("assess")["findings"]) == rows
    assert first.wait_for_end()["state"] == "success"

    second = start_night(deployment, tmp_path, 2, answered=0)
    assert second.wait_for_end()["state"] == "success"
    result = second.returned("assess")
    assert (result["assessed"], result["carried"], result["changed"]) == (0, len(DOCUMENTS), 0)
    decided = {
        (Path(row["source"]).name, row["criterion"]): row for row in read(result["findings"]) if row["expert"]
    }
    assert {
        key: (row["expert"], row["category"], row["expert_category"], row["expert_rationale"])
        for key, row in decided.items()
    } == {
        (corrected, EXIT): (USER, MISSING, GOOD, WHY[EXIT]),
        (corrected, AUDIT): (USER, MISSING, MISSING, WHY[AUDIT]),
    }
    again = {
        names_of(second)[index].partition(",")[0]: asked_on(form) for index, form in forms_of(second).items()
    }
    assert again == {
        corrected: {ids[corrected, INCIDENT]},
        refused: {ids[refused, criterion] for criterion in OPEN},
        expired: {ids[expired, criterion] for criterion in OPEN},
    }
    assert service.count("submit_assessment") == len(DOCUMENTS)
    assert len(service.feedback()) == len(sent)
    assert read_decisions(nights / "dt=2026-03-01") == [decisions]
    assert read_decisions(nights / "dt=2026-03-02") == []
