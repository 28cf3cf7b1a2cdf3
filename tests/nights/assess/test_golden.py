"""Nights with golden documents: what they cost, and what follows if the judge changes."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import make_docx
from airflow_provider.emulator.service import catalog
from airflow_provider.emulator.service import state as emulated
from airflow_provider.nights.assess import output
from airflow_provider.nights.assess.task import AssessTask
from airflow_provider.nights.evidence.verifier import Folder, Verifier
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.runtime import metrics
from airflow_provider.storage.lineage import Lineage
from airflow_provider.waiting import rules
from tests.nights.assess.conftest import NightOutcome, Nights, attempts_of, read
from tests.nights.evidence.nights import close
from tests.support.attempts import Attempts
from tests.support.forking import Child, may_fork
from tests.support.signals import signalled_when, until

GOOD, BAD, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
FRAMEWORKS = ["DORA", "GDPR", "NIS2"]
CHANGED = "DORA-30-2-a"  # the criterion that another model of the emulator judges otherwise
TITLE = "Description of functions and services"  # of the same criterion
TEXTS = {f"in/{number}.pdf": f"Scope of services {number}, service description, exit." for number in range(4)}


@pytest.fixture(autouse=True)
def _three_frameworks(service: Emulator) -> None:
    dora, gdpr = service.frameworks()
    service.set_frameworks([dora, gdpr, {**gdpr, "id": 3, "codeName": "NIS2"}])


@pytest.fixture
def golden(tmp_path: Path) -> str:
    """Twelve golden documents with three frameworks each, as files that the service has never seen."""
    rows = []
    for number in range(12):
        path = tmp_path / f"golden-{number}.docx"
        path.write_bytes(
            make_docx(
                f"Golden {number}: scope of services, service description, personal data of the controller."
            )
        )
        for framework, criterion in (("DORA", CHANGED), ("GDPR", "GDPR-28-3-a"), ("NIS2", "GDPR-28-3-a")):
            rows.append(
                {"source": f"file://{path}", "framework": framework, "criterion": criterion, "category": GOOD}
            )
    return write_golden(tmp_path, rows)


def write_golden(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "golden.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file://{path}"


def start(nights: Nights, texts: dict[str, str] = TEXTS, **kwargs: Any) -> ComplianceAssessOperator:
    """Return the task of the next night; given `documents`, another one of this night."""
    values = {"task_id": "t", "poll_interval": 0.1, "frameworks": FRAMEWORKS}
    values["documents"] = kwargs.get("documents") or nights.manifest(texts)
    return ComplianceAssessOperator(**{**values, "destination": nights.destination, **kwargs})


def run(nights: Nights, texts: dict[str, str] = TEXTS, **kwargs: Any) -> NightOutcome:
    task = start(nights, texts, **kwargs)
    return NightOutcome(attempts_of(nights.number).run(task))


def counts(night: NightOutcome) -> tuple[int, int]:
    return night.result["assessed"], night.result["carried"]


def test_silent_change_of_the_model_is_named_and_its_framework_assessed_again(
    service: Emulator, nights: Nights, golden: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(nights, golden=golden)
    assert (counts(first), first.result["drifted"]) == ((12, 0), [])
    quiet = run(nights, golden=golden)
    assert (counts(quiet), quiet.result["drifted"]) == ((0, 12), [])
    service.configure(model=2)
    third = run(nights, golden=golden)
    (drift,) = third.result["drifted"]
    assert (drift["framework"], drift["criterion"], drift["moved"], drift["compared"]) == (
        "DORA",
        CHANGED,
        12,
        12,
    )
    assert drift["documents"][0]["source"].endswith(".docx")
    assert (drift["documents"][0]["before"], drift["documents"][0]["category"]) == (GOOD, BAD)
    assert f"The judge has drifted: {CHANGED} (DORA), 12 of 12 documents moved" in capsys.readouterr().out
    assert {(row["framework"], row["carried_from"] is None, row["because"]) for row in third.rows} == {
        ("DORA", True, "judge"),
        ("GDPR", False, None),
        ("NIS2", False, None),
    }
    changed = [row for row in third.findings if row["changed_from"]]
    assert {(row["criterion"], row["because"], row["category"]) for row in changed} == {
        (CHANGED, "judge", BAD)
    }
    assert len(changed) == 4
    page = Path(third.result["report"].removeprefix("file://")).read_text()
    assert "Drifted:" in page
    assert "The judge has drifted" in page
    fourth = run(nights, golden=golden)
    assert (counts(fourth), fourth.result["drifted"], fourth.result["changed"]) == ((0, 12), [], 0)


def test_twelve_documents_and_three_frameworks_cost_48_cells_beside_the_night_s_numbers(
    service: Emulator, nights: Nights, golden: str
) -> None:
    plan = attempts_of(1).run(start(nights, golden=golden, dry_run=True))
    assert (plan["golden"], plan["requests"]) == (36 + 12, 3 * (12 + 48 + 12))  # and 12 texts
    assert service.count("submit_assessment") == 0
    nights.number = 0
    first = run(nights, golden=golden)
    assert service.count("submit_assessment") == 12 + 48
    assert service.count("submit_file") == 12
    rows = read(first.result["golden"])
    assert len({row["assessment_id"] for row in rows}) == 48
    repeated = {(row["source"], row["framework"]) for row in rows if row["repeat"]}
    assert Counter(framework for _, framework in repeated) == dict.fromkeys(FRAMEWORKS, 4)
    assert {row["source"] for row in first.rows} == set(TEXTS)
    assert sum(sum(each.values()) for each in first.result["categories"].values()) == len(first.findings)
    plan = attempts_of(2).run(start(nights, golden=golden, dry_run=True))
    assert (plan["golden"], plan["carried"], plan["requests"]) == (48, 12, 3 * 48)
    nights.number = 1
    run(nights, golden=golden)
    assert service.count("submit_assessment") == 12 + 48 + 48
    assert service.count("submit_file") == 12  # they are processed once


def test_golden_cell_of_a_document_of_the_night_has_its_own_verdict(
    service: Emulator, nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, answered = itertools.cycle([GOOD, BAD, MISSING]), itertools.count()

    def judge(text: str, criterion: dict[str, Any]) -> tuple[str, str]:
        """Answer each of the three assessments, with six criteria each, otherwise."""
        return next(answers) if next(answered) % 6 == 0 else GOOD, "Because."

    monkeypatch.setattr(emulated, "assess", judge)
    rows = [{"source": "in/0.pdf", "framework": "DORA", "criterion": CHANGED, "category": BAD}]
    night = run(
        nights, {"in/0.pdf": "x"}, frameworks="DORA", golden=write_golden(tmp_path, rows), concurrency=1
    )
    assert service.count("submit_file") == 0  # its text is among tonight's
    golden = [row for row in read(night.result["golden"]) if row["criterion"] == CHANGED]
    (finding,) = [row for row in night.findings if row["criterion"] == CHANGED]
    assert [row["repeat"] for row in golden] == [False, True]
    assert {row["category"] for row in (*golden, finding)} == {GOOD, BAD, MISSING}
    stored = {row["results_path"]: row["results_sha256"] for row in (*golden, *night.rows)}
    assert len(stored) == 3
    for path, sha256 in stored.items():
        assert hashlib.sha256(Path(path.removeprefix("file://")).read_bytes()).hexdigest() == sha256


def test_service_that_wobbles_in_five_percent_is_not_called_drifted(
    service: Emulator, nights: Nights, golden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wobble, assess = random.Random(5), catalog.assess

    def assess_unsteadily(text: str, criterion: dict[str, Any]) -> tuple[str, str]:
        category, rationale = assess(text, criterion)
        others = [one for one in (GOOD, BAD, MISSING) if one != category]
        return (wobble.choice(others) if wobble.random() < 0.05 else category), rationale

    monkeypatch.setattr(emulated, "assess", assess_unsteadily)
    run(nights, golden=golden)
    for _ in range(4):
        night = run(nights, golden=golden)
        moved = [row for row in read(night.result["golden"]) if row["before"] not in (None, row["category"])]
        assert moved
        assert (night.result["drifted"], counts(night)) == ([], (0, 12))


@pytest.mark.parametrize("deferrable", [False, True])
def test_kills_and_clears_in_between_change_nothing(
    service: Emulator, nights: Nights, golden: str, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    run(nights, golden=golden)
    service.configure(model=2)
    before = service.count("submit_assessment")
    documents, attempts = nights.manifest(TEXTS), attempts_of(2)

    def task() -> ComplianceAssessOperator:
        return start(nights, documents=documents, golden=golden, deferrable=deferrable)

    read_earlier = AssessTask._read_earlier

    async def die(self: AssessTask, **kwargs: Any) -> None:
        raise exc.ComplianceConnectionError("Killed between the golden documents and the others.")

    monkeypatch.setattr(AssessTask, "_read_earlier", die)
    with pytest.raises(exc.ComplianceConnectionError):
        attempts.run(task())
    assert service.count("submit_assessment") == before + 48
    monkeypatch.setattr(AssessTask, "_read_earlier", read_earlier)
    second = NightOutcome(attempts.run(task()))
    assert service.count("submit_assessment") == before + 48 + 4
    assert [drift["criterion"] for drift in second.result["drifted"]] == [CHANGED]
    rows, findings, judged = second.rows, second.findings, read(second.result["golden"])
    service.configure(model=1)  # a clear does not ask again
    attempts.clear()
    cleared = NightOutcome(attempts.run(task()))
    assert service.count("submit_assessment") == before + 48 + 4
    assert (cleared.result, cleared.rows, cleared.findings) == (second.result, rows, findings)
    assert read(cleared.result["golden"]) == judged
    for work in nights.folder.glob("out/dt=*/_work"):  # nor without what may be deleted at any time
        shutil.rmtree(work)
    attempts.clear()
    assert NightOutcome(attempts.run(task())).result == second.result
    assert service.count("submit_assessment") == before + 48 + 4


def test_cell_that_failed_in_the_night_of_the_drift_is_not_carried_from_before_it(
    service: Emulator, nights: Nights, golden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(nights, golden=golden)
    service.configure(model=2)
    task = start(nights, {"in/0.pdf": TEXTS["in/0.pdf"]}, golden=golden)  # the others come back later
    assert counts(NightOutcome(attempts_of(2).run(task))) == (1, 2)
    third = run(nights, golden=golden)
    assert counts(third) == (3, 9)
    (again,) = {row["framework"] for row in third.rows if not row["carried_from"]}
    assert again == "DORA"
    assert {row["category"] for row in third.findings if row["criterion"] == CHANGED} == {BAD}


def test_verdict_of_the_earlier_judge_in_another_run_of_the_date_is_not_carried(
    service: Emulator, nights: Nights, golden: str
) -> None:
    run(nights, golden=golden)
    texts = {**TEXTS, "in/new.pdf": "scope of services"}
    other = start(nights, texts)
    dag_run = SimpleNamespace(logical_date=datetime(2026, 3, 2, tzinfo=UTC))
    assert counts(
        NightOutcome(Attempts(identity={"run_id": "x"}, context={"dag_run": dag_run}).run(other))
    ) == (
        3,
        12,
    )
    service.configure(model=2)
    documents = other.documents
    for nights.number in (2, 3):
        night = run(nights, golden=golden, documents=documents)
        assert {row["category"] for row in night.findings if row["criterion"] == CHANGED} == {BAD}


def test_drift_with_fail_publishes_nothing_until_it_is_decided(
    service: Emulator, nights: Nights, golden: str
) -> None:
    run(nights, golden=golden)
    service.configure(model=2)
    for night in (2, 3):  # the next night finds the same
        task = start(nights, golden=golden, on_drift="fail")
        with pytest.raises(Exception, match=f"has drifted: {CHANGED}.*clear this task"):
            attempts_of(night).run(task)
    assert not list(nights.folder.glob("out/dt=2026-03-0[23]/_assess/*/*/*/*.jsonl"))
    task.on_drift = "reassess"
    assert counts(NightOutcome(attempts_of(3).run(task))) == (4, 8)


def test_drift_with_warn_carries_verdicts_forward(
    service: Emulator, nights: Nights, golden: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(nights, golden=golden)
    service.configure(model=2)
    second = run(nights, golden=golden, on_drift="warn")
    assert (counts(second), len(second.result["drifted"])) == ((0, 12), 1)
    assert "The judge has drifted" in capsys.readouterr().out
    assert counts(run(nights, golden=golden)) == (0, 12)


def test_changed_framework_is_not_a_drift(service: Emulator, nights: Nights, golden: str) -> None:
    run(nights, golden=golden)
    service.configure(model=2)
    frameworks = service.frameworks()
    frameworks[0]["description"] = "Another one."
    service.set_frameworks(frameworks)
    assert run(nights, golden=golden).result["drifted"] == []


def row(**changes: Any) -> dict[str, Any]:
    return {"source": "in/0.pdf", "framework": "DORA", "criterion": CHANGED, "category": GOOD, **changes}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([row(category="FINE")], "Unknown category 'FINE' in `golden`: use one of"),
        ([row(), row(category=BAD)], "Remove one of two categories"),
        ([row(), row(criterion=CHANGED.lower(), category=BAD)], "Remove one of two categories"),
        ([row(), row(framework="1", category=BAD)], "Remove one of two categories"),
        ([row(), row(criterion=TITLE, category=BAD)], "Remove one of two categories"),
        ([row(text_sha256="a"), row(criterion="x", text_sha256="b")], "Keep only lines on one text_sha256"),
        ([row(), row(criterion=" ")], "Add criterion to the golden document in"),
        (["0b1c"], "Add source, framework, criterion, category to"),
        (
            [row(source=f"in/{number}.pdf") for number in range(501)],
            "Choose at most 500 golden documents, not 501",
        ),
        ("file:///no/such/golden.jsonl", "golden.jsonl' does not exist: correct its URI"),
    ],
)
def test_invalid_golden_documents_are_refused_with_their_place(
    nights: Nights, rows: Any, problem: str
) -> None:
    with pytest.raises(exc.ComplianceError, match=problem):
        run(nights, golden=rows)
    assert nights.service.count("submit_assessment") == 0


def test_unusable_golden_documents_are_warnings(service: Emulator, nights: Nights, tmp_path: Path) -> None:
    rows = [
        row(criterion="DORA-99"),
        row(framework="ISO"),
        row(framework="TISAX", category=BAD),
        row(source="in/1.pdf", text_sha256="0" * 64),
        row(source=f"file://{tmp_path}/gone.pdf"),
    ]
    night = run(nights, golden=rows, frameworks="DORA")
    assert counts(night) == (4, 0)
    assert "DORA-99" in night.result["warnings"][-1]
    assert [warning.partition(":")[0] for warning in night.result["warnings"]] == [
        "This task does not assess frameworks of golden documents",
        "Golden documents could not be processed",
        "The service does not know criteria of golden documents",
    ]


def test_closed_night_has_golden_tables_in_its_evidence_and_a_trend_in_its_report(
    service: Emulator, nights: Nights, golden: str
) -> None:
    for number in (1, 2):
        service.configure(model=number)
        night = run(nights, golden=golden)
        closed = close(nights.destination, number, assessed=night.result)
    assert (closed["agreed"], closed["disagreed"], closed["drifted"]) == (24, 12, 1)
    assert closed["assessments"] == 12
    entry = json.loads(Path(closed["night"].removeprefix("file://")).read_text())
    assert {table["kind"]: table["rows"] for table in entry["manifests"]} == {
        "assess": 12,
        "findings": 72,
        "golden": 48 * 6,
        "agreement": 3 + 18,
    }
    page = Path(closed["report"].removeprefix("file://")).read_text()
    assert "The judge has drifted on 1 of its criteria." in page.replace("\u00a0", " ")
    assert page.count("<title>Agreement</title>") == 1
    store = Folder(str(nights.folder / "out"))
    assert [check.status for check in Verifier(store).run()] == ["OK", "OK"]
    for path in nights.folder.glob("out/dt=*02/results/*"):
        path.chmod(0o644)
        path.write_text("{}")
    assert [check.status for check in Verifier(store).run()] == ["OK", "CHANGED"]


def test_lineage_asserts_that_the_judge_is_the_same_and_better_than_chance(
    service: Emulator, nights: Nights, golden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineages = []
    monkeypatch.setattr(Lineage, "report", lambda self, hook: lineages.append(self))
    run(nights, golden=golden)
    service.configure(model=2)
    run(nights, golden=golden)
    asserted = {
        (verdict.criterion, verdict.assertion): verdict.is_sufficient
        for verdict in lineages[-1].verdicts
        if verdict.text.uri == golden
    }
    assert asserted[f"DORA: {CHANGED}", "is judged as in the previous night"] is False
    assert asserted["GDPR: GDPR-28-3-a", "is judged as in the previous night"] is True
    assert golden in {text.uri for text in lineages[-1].texts}


def test_metrics_have_agreement_and_drift_of_each_framework(
    service: Emulator, nights: Nights, golden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = {}
    monkeypatch.setattr(
        metrics,
        "gauge",
        lambda metric, conn_id, value, **tags: sent.update({(metric.name, tags.get("framework")): value}),
    )
    run(nights, golden=golden)
    service.configure(model=2)
    run(nights, golden=golden)
    assert (sent["agreement", "DORA"], sent["drifted", "DORA"]) == (0.0, 1)
    assert (sent["agreement", "GDPR"], sent["drifted", "GDPR"]) == (1.0, 0)
    assert ("kappa", "GDPR") not in sent  # experts and judge know one category only


def test_decisions_of_experts_count_without_golden_documents(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "agreement" not in run(nights).result
    decided = {
        (f"cell {number}", CHANGED): {
            "framework": "DORA",
            "category_before": GOOD,
            "expert_category": MISSING if number == 0 else GOOD,
            "decided_at": "2026-03-01",
        }
        for number in range(10)
    }
    monkeypatch.setattr(output, "read_decisions", lambda nights: decided)
    night = run(nights)
    (whole, criterion) = read(night.result["agreement"])
    assert (whole["cases"], whole["agreement"], whole["base_rate"], whole["kappa"]) == (10, 0.9, 0.9, 0.0)
    assert criterion["worthless"] is True
    page = Path(night.result["report"].removeprefix("file://")).read_text()
    assert "no better than chance" in page
    assert not {"golden", "drifted"} & night.result.keys()


def test_golden_document_that_the_service_forgot_is_submitted_again(
    service: Emulator, nights: Nights, golden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 0.01)
    first = run(nights, golden=golden)
    uuid = read(first.result["golden"])[0]["uuid"]
    service.remove_job(uuid)
    second = run(nights, golden=golden)
    assert service.count("submit_file") == 13
    assert (second.result["drifted"], second.result["warnings"]) == ([], [])
    assert uuid not in {row["uuid"] for row in read(second.result["golden"])}


def test_job_of_a_golden_document_is_not_deleted_with_those_of_the_night(
    service: Emulator, nights: Nights, tmp_path: Path
) -> None:
    golden = write_golden(tmp_path, [row()])
    night = run(nights, golden=golden, frameworks="DORA", delete_after="assess")
    (kept,) = {row["uuid"] for row in read(night.result["golden"])}
    assert night.result["deleted"] == len(TEXTS) - 1
    assert [job["uuid"] for job in service.jobs()] == [kept]


def test_task_defers_while_golden_documents_are_assessed(
    service: Emulator, nights: Nights, golden: str
) -> None:
    service.configure(jobs="polls:25")
    task, attempts = start(nights, golden=golden, deferrable=True, max_failed=0), attempts_of(1)
    night = NightOutcome(attempts.run(task))
    assert attempts.deferrals
    assert service.count("submit_assessment") == 12 + 48
    assert len(read(night.result["golden"])) == 48 * 6


@pytest.mark.once
@may_fork
def test_kills_among_golden_documents_lose_and_mix_nothing(
    service: Emulator, nights: Nights, golden: str
) -> None:
    documents, concurrency = nights.manifest(TEXTS), 4

    def attempt() -> Any:
        task = start(nights, documents=documents, golden=golden, concurrency=concurrency)
        return attempts_of(1).run(task)

    service.configure(jobs="polls:2")
    for steps in (20, 40, 90):  # while texts, golden cells and cells of the night are in flight
        goal = service.count() + steps
        hang = service.fail("*", delay=3600, skip=steps, times=None)
        child = Child(attempt)
        until(lambda: service.count() >= goal)  # noqa: B023 - run now
        child.kill()
        service.clear_faults(hang)
    night = NightOutcome(Child(attempt).result())
    assert counts(night) == (12, 0)
    assert 12 + 48 <= service.count("submit_assessment") <= 12 + 48 + 3 * concurrency
    assert 12 <= service.count("submit_file") <= 12 + 3 * concurrency
    found = Counter((row["source"], row["framework"], row["repeat"]) for row in read(night.result["golden"]))
    assert len(found) == 48
    assert set(found.values()) == {6}
    assert {row["source"] for row in night.findings} == set(TEXTS)


@pytest.mark.parametrize(
    ("status", "seconds", "problem"),
    [
        (400, 86400, "Golden documents could not be processed"),
        (403, 86400, "No golden document could be processed"),  # the account may not submit files
        (500, 20, "Golden documents could not be processed"),  # until a quarter of the time is over
    ],
)
def test_service_that_takes_no_golden_document_does_not_fail_the_night(
    service: Emulator, nights: Nights, golden: str, status: int, seconds: int, problem: str
) -> None:
    service.fail("submit_file", status=status, times=None)
    night = run(nights, golden=golden, timeout=seconds)
    assert counts(night) == (12, 0)
    (warning,) = night.result["warnings"]
    assert warning.startswith(problem)


def test_criterion_can_be_named_by_code_and_by_title(nights: Nights) -> None:
    for rows in ([row(), row(criterion=TITLE)], [row(criterion=TITLE.upper())]):
        night = run(nights, frameworks="DORA", golden=rows)
        assert night.result["warnings"] == []
        decided = {one["criterion"]: one["expert_category"] for one in read(night.result["golden"])}
        assert (decided.pop(CHANGED), set(decided.values())) == (GOOD, {None})


def test_hash_in_a_later_line_counts_for_the_document(nights: Nights) -> None:
    rows = [row(source="in/1.pdf"), row(source="in/1.pdf", criterion="DORA-30-2-b", text_sha256="0" * 64)]
    night = run(nights, frameworks="DORA", golden=rows)
    assert "golden" not in night.result


def test_golden_documents_without_a_field_of_the_payload_are_a_warning_before_anything_is_sent(
    service: Emulator, nights: Nights, golden: str
) -> None:
    payload = {
        "contentUuid": "{document[uuid]}",
        "framework": "{framework[codeName]}",
        "x": "{document[owner]}",
    }
    documents = nights.manifest(TEXTS, owner="ada")
    night = run(nights, golden=golden, payload=payload, documents=documents)
    assert counts(night) == (12, 0)
    assert "no such field" in night.result["warnings"][0]
    assert service.count("submit_file") == 0


@pytest.mark.parametrize("deferrable", [False, True])
def test_golden_document_that_is_never_assessed_leaves_time_for_the_night(
    service: Emulator, nights: Nights, tmp_path: Path, deferrable: bool
) -> None:
    golden = write_golden(tmp_path, [row()])
    service.configure(jobs="manual")
    task = start(nights, frameworks="DORA", golden=golden, deferrable=deferrable, timeout=40)
    attempts = attempts_of(1)

    def is_given_up() -> bool:
        return service.count("cancel_assessment") >= 2

    with signalled_when(is_given_up, lambda: service.configure(jobs="instant")):
        night = NightOutcome(attempts.run(task))
    assert bool(attempts.deferrals) is deferrable
    assert counts(night) == (4, 0)
    assert night.result["warnings"][0].startswith("Golden documents could not be assessed")
