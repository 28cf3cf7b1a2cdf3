"""Nights with golden documents: what they cost, and what follows if the judge changes."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import make_docx
from airflow_provider.nights.assess import output
from airflow_provider.nights.evidence.verifier import Folder, Verifier
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.judge import ComplianceJudgeOperator
from airflow_provider.runtime import metrics
from airflow_provider.storage.lineage import Lineage
from tests.support.attempts import Attempts, heard
from tests.support.nights import NightOutcome, Nights, read

GOOD, BAD = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED"
FRAMEWORKS = ["DORA", "GDPR"]
CHANGED = "DORA-30-2-a"  # the criterion that another model of the emulator judges otherwise
TITLE = "Description of functions and services"  # of the same criterion
TEXTS = {f"in/{number}.pdf": f"Scope of services {number}, service description, exit." for number in range(4)}
DOCUMENTS = 12


@pytest.fixture
def golden(tmp_path: Path) -> str:
    """Twelve golden documents with a decision on each framework, as files that the service has never seen."""
    rows = []
    for number in range(DOCUMENTS):
        path = tmp_path / f"golden-{number}.docx"
        text = f"Golden {number}: scope of services, service description, personal data of the controller."
        path.write_bytes(make_docx(text))
        for framework, criterion in (("DORA", CHANGED), ("GDPR", "GDPR-28-3-a")):
            rows.append(row(source=path.as_uri(), framework=framework, criterion=criterion))
    return write_golden(tmp_path, rows)


def row(**changes: Any) -> dict[str, Any]:
    return {"source": "in/0.pdf", "framework": "DORA", "criterion": CHANGED, "category": GOOD, **changes}


def write_golden(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "golden.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.as_uri()


class GoldenNight:
    """The tasks of a night with golden documents, each with its attempts."""

    def __init__(self, nights: Nights, golden: Any, texts: dict[str, str] = TEXTS, **judge: Any) -> None:
        self.documents = nights.manifest(texts)
        self.number, self.destination = nights.number, nights.destination()
        self.root, self.golden = f"file://{nights.folder}/out", golden
        self.judge = judge
        self.attempts: dict[str, Attempts] = {}
        self.assessed: Any = None

    def run(self, kind: type[Any], task_id: str, **options: Any) -> Any:
        dag_run = SimpleNamespace(logical_date=datetime(2026, 3, self.number, tzinfo=UTC))
        identity = {"run_id": f"run-{self.number}", "task_id": task_id}
        new = Attempts(identity=identity, context={"dag_run": dag_run})
        attempts = self.attempts.setdefault(task_id, new)
        return attempts.run(heard(kind(**{"task_id": task_id, "destination": self.destination, **options})))

    def judged(self) -> dict[str, Any]:
        """Ingest and assess golden documents, then judge the judge."""
        place = {"destination": f"{self.root}/golden/dt=2026-03-{self.number:02}/", "max_failed": 1.0}
        options = {**place, "poll_interval": 0.1}
        sources = [row["source"] for row in self.golden] if isinstance(self.golden, list) else self.golden
        ingested = self.run(
            ComplianceIngestOperator, "ingest_golden", sources=sources, skip_unchanged=True, **options
        )
        options |= {"frameworks": FRAMEWORKS, "changed_only": False}
        self.assessed = self.run(ComplianceAssessOperator, "assess_golden", documents=ingested, **options)
        return self.judge_again()

    def judge_again(self) -> dict[str, Any]:
        options = {"golden": self.golden, "assessed": self.assessed, **self.judge}
        result: dict[str, Any] = self.run(ComplianceJudgeOperator, "judge", **options)
        return result

    def assess(self, reassess: Any, **options: Any) -> NightOutcome:
        options = {"frameworks": FRAMEWORKS, "poll_interval": 0.1, **options}
        return NightOutcome(
            self.run(
                ComplianceAssessOperator, "assess", documents=self.documents, reassess=reassess, **options
            )
        )


def run(nights: Nights, golden: Any, **judge: Any) -> tuple[dict[str, Any], NightOutcome]:
    night = GoldenNight(nights, golden, **judge)
    judged = night.judged()
    return judged, night.assess(judged)


def counts(night: NightOutcome) -> tuple[int, int]:
    return night.result["assessed"], night.result["carried"]


def test_silent_change_of_the_model_is_named_and_its_framework_assessed_again(
    service: Emulator, nights: Nights, golden: str, caplog: pytest.LogCaptureFixture
) -> None:
    for expected in ((8, 0), (0, 8)):
        judged, night = run(nights, golden)
        assert (judged["drifted"], judged["reassess"], counts(night)) == ([], [], expected)
    service.configure(model=2)
    judged, night = run(nights, golden)
    (drift,) = judged["drifted"]
    numbers = [drift[name] for name in ("framework", "criterion", "moved", "compared")]
    assert numbers == ["DORA", CHANGED, 12, 12]
    assert (drift["documents"][0]["before"], drift["documents"][0]["category"]) == (GOOD, BAD)
    assert f"drifted: {CHANGED} (DORA), 12 of 12 documents moved" in caplog.text
    assert {(row["framework"], row["carried_from"] is None, row["change_reason"]) for row in night.rows} == {
        ("DORA", True, "judge"),
        ("GDPR", False, None),
    }
    changed = [row for row in night.findings if row["changed_from"]]
    assert {(row["criterion"], row["change_reason"], row["category"]) for row in changed} == {
        (CHANGED, "judge", BAD)
    }
    judged, night = run(nights, golden)
    assert (judged["drifted"], counts(night), night.result["changed"]) == ([], (0, 8), 0)


def test_golden_documents_are_processed_once_and_assessed_once_a_night(
    service: Emulator, nights: Nights, golden: str
) -> None:
    for number in (1, 2):
        judged, night = run(nights, golden)
        assert service.count("submit_file") == DOCUMENTS
        assert service.count("submit_assessment") == 8 + number * 2 * DOCUMENTS
    rows = read(judged["golden"])
    assert len({row["assessment_id"] for row in rows}) == 2 * DOCUMENTS
    assert {row["source"] for row in night.rows} == set(TEXTS)
    service.remove_job(rows[0]["uuid"])
    run(nights, golden)
    assert service.count("submit_file") == DOCUMENTS + 1  # the service has forgotten it


def test_a_clear_of_any_task_changes_nothing(service: Emulator, nights: Nights, golden: str) -> None:
    for _ in range(2):
        run(nights, golden)
    service.configure(model=2)
    night = GoldenNight(nights, golden)
    judged = night.judged()
    first = night.assess(judged)
    service.configure(model=1)
    sent = service.count("submit_assessment")
    for attempts in night.attempts.values():
        attempts.clear()
    assert night.judged() == judged
    assert night.assess(judged).result == first.result
    assert service.count("submit_assessment") == sent
    night = GoldenNight(nights, golden)
    assert night.assess([]).result["carried"] == 8  # what was assessed in that night is of the new judge


def test_cell_that_failed_in_the_night_of_the_drift_is_not_carried_from_before_it(
    service: Emulator, nights: Nights, golden: str
) -> None:
    for _ in range(2):
        run(nights, golden)
    service.configure(model=2)
    night = GoldenNight(nights, golden, {"in/0.pdf": TEXTS["in/0.pdf"]})  # the others come back later
    assert counts(night.assess(night.judged())) == (1, 1)
    _, later = run(nights, golden)
    assert counts(later) == (3, 5)
    assert {row["framework"] for row in later.rows if not row["carried_from"]} == {"DORA"}


def test_documents_that_were_not_assessed_in_the_night_of_the_drift_are_assessed_again_later(
    service: Emulator, nights: Nights, golden: str
) -> None:
    """Such as those of a shard that has failed."""
    for _ in range(2):
        run(nights, golden)
    service.configure(model=2)
    assert GoldenNight(nights, golden).judged()["reassess"]
    judged, night = run(nights, golden)
    assert judged["drifted"] == []
    assert {(row["framework"], not row["carried_from"]) for row in night.rows} == {
        ("DORA", True),
        ("GDPR", False),
    }
    assert counts(run(nights, golden)[1]) == (0, 8)


def test_drift_with_fail_publishes_nothing_until_it_is_decided(
    service: Emulator, nights: Nights, golden: str
) -> None:
    for _ in range(2):
        run(nights, golden)
    service.configure(model=2)
    for _ in range(2):  # the next night finds the same
        night = GoldenNight(nights, golden, on_drift="fail")
        with pytest.raises(Exception, match=f"drifted: {CHANGED}.*clear this task"):
            night.judged()
        with pytest.raises(Exception, match="Missing reassess"):
            night.assess("None")  # what is rendered of a judge that has failed
    assert not list(nights.folder.glob("out/dt=2026-03-0[34]/_assess/*/*/*/*.jsonl"))
    night.judge = {"on_drift": "reassess"}
    assert counts(night.assess(night.judge_again())) == (4, 4)


def test_drift_with_warn_carries_verdicts_forward(service: Emulator, nights: Nights, golden: str) -> None:
    for _ in range(2):
        run(nights, golden)
    service.configure(model=2)
    judged, night = run(nights, golden, on_drift="warn")
    assert (len(judged["drifted"]), judged["reassess"], counts(night)) == (1, [], (0, 8))


def test_frameworks_to_assess_again_may_be_named(service: Emulator, nights: Nights) -> None:
    GoldenNight(nights, []).assess([])
    for given in ("GDPR", ["2"], '{"reassess": [2]}'):
        night = GoldenNight(nights, []).assess(given)
        assert {row["framework"] for row in night.rows if not row["carried_from"]} == {"GDPR"}
    with pytest.raises(exc.ComplianceInputError, match="no framework 'ISO'"):
        GoldenNight(nights, []).assess("ISO")


def test_changed_framework_is_not_a_drift(service: Emulator, nights: Nights, golden: str) -> None:
    for _ in range(2):
        run(nights, golden)
    service.configure(model=2)
    frameworks = service.frameworks()
    frameworks[0]["description"] = "Another one."
    service.set_frameworks(frameworks)
    assert run(nights, golden)[0]["drifted"] == []


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([row(category="FINE")], "Unknown category 'FINE' in `golden`: use one of"),
        ([row(), row(category=BAD)], "Remove one of two categories"),
        ([row(), row(criterion=CHANGED.lower(), category=BAD)], "Remove one of two categories"),
        ([row(text_sha256="a"), row(criterion="x", text_sha256="b")], "Keep only lines on one text_sha256"),
        ([row(), row(criterion=" ")], "Add criterion to the golden document in"),
        (["0b1c"], "Add source, framework, criterion, category to"),
        ([row(source=f"in/{number}.pdf") for number in range(501)], "at most 500 golden documents, not 501"),
        ("file:///no/such/golden.jsonl", "golden.jsonl' does not exist: correct its URI"),
    ],
)
def test_invalid_golden_documents_are_refused_with_their_place(
    nights: Nights, rows: Any, problem: str
) -> None:
    with pytest.raises(exc.ComplianceError, match=problem):
        GoldenNight(nights, rows).judge_again()


def test_unusable_golden_documents_are_warnings(service: Emulator, nights: Nights, golden: str) -> None:
    first, second = (path.as_uri() for path in sorted(nights.folder.glob("*.docx"))[:2])
    rows = [
        row(source=first, criterion="DORA-99"),
        row(source=first, framework="ISO"),
        row(source=second, text_sha256="0" * 64),
        row(source=f"file://{nights.folder}/gone.pdf"),
    ]
    judged, night = run(nights, rows)
    assert counts(night) == (8, 0)
    assert [warning.partition(":")[0] for warning in judged["warnings"]] == [
        "Golden documents were not assessed tonight",
        "Golden documents have another text than experts decided on",
        "Tonight does not assess frameworks of golden documents",
        "The service does not know criteria of golden documents",
    ]
    (expected,) = {row["text_sha256"] for row in read(judged["golden"])}
    same = {"source": first, "text_sha256": expected.upper()}
    rows = [row(criterion=name, **same) for name in (CHANGED, TITLE.upper())]
    judged, _ = run(nights, rows)
    assert judged["warnings"] == []
    decided = {one["criterion"]: one["expert_category"] for one in read(judged["golden"])}
    assert (decided.pop(CHANGED), set(decided.values())) == (GOOD, {None})
    with pytest.raises(exc.ComplianceInputError, match="Remove one of two categories"):
        run(nights, [row(source=first), row(source=first, criterion=TITLE, category=BAD)])


@pytest.mark.parametrize("assessed", [None, {"dry_run": True}])
def test_golden_documents_that_were_not_assessed_do_not_fail_the_night(
    nights: Nights, golden: str, assessed: Any
) -> None:
    night = GoldenNight(nights, golden)
    night.assessed = assessed
    judged = night.judge_again()
    (warning,) = judged["warnings"]
    assert warning.startswith("Golden documents were not assessed tonight: ")
    assert counts(night.assess(judged)) == (8, 0)
    assert read(judged["golden"]) == []


def test_closed_night_has_golden_tables_in_its_evidence_and_a_trend_in_its_report(
    service: Emulator, nights: Nights, golden: str
) -> None:
    for number in (1, 2, 3):
        service.configure(model=2 if number == 3 else 1)
        judged, night = run(nights, golden)
        closed = nights.close(number, assessed=[night.result, judged])
    assert (closed["agreed"], closed["disagreed"], closed["drifted"]) == (12, 12, 1)
    assert closed["assessments"] == 8
    entry = json.loads(Path(closed["night"].removeprefix("file://")).read_text())
    found = Counter({table["kind"]: table["rows"] for table in entry["manifests"]})
    assert found == {"assess": 8, "findings": 48, "golden": DOCUMENTS * 12, "agreement": 2 + 12}
    page = Path(closed["report"].removeprefix("file://")).read_text()
    assert "The service decides differently on 1 criterion" in page.replace("\u00a0", " ")
    assert page.count("<title>Agreement</title>") == 1
    store = Folder(str(nights.folder / "out"))
    assert [check.status for check in Verifier(store).run()] == ["OK"] * 3
    for path in nights.folder.glob("out/golden/dt=*03/results/*"):
        path.chmod(0o644)
        path.write_text("{}")
    assert [check.status for check in Verifier(store).run()] == ["OK", "OK", "CHANGED"]


def test_lineage_and_metrics_have_what_is_known_of_the_judge(
    service: Emulator, nights: Nights, golden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineages: list[Lineage] = []
    sent: dict[Any, Any] = {}
    monkeypatch.setattr(Lineage, "report", lambda self, hook: lineages.append(self))
    monkeypatch.setattr(
        metrics,
        "gauge",
        lambda metric, conn_id, value, **tags: sent.update({(metric.name, tags.get("framework")): value}),
    )
    for number in (1, 1, 2):
        service.configure(model=number)
        night = GoldenNight(nights, golden)
        night.judged()
    verdicts = {(one.criterion, one.assertion): one.is_sufficient for one in lineages[-1].verdicts}
    assert verdicts[f"DORA: {CHANGED}", "gets the same verdicts as on earlier nights"] is False
    assert verdicts["GDPR: GDPR-28-3-a", "gets the same verdicts as on earlier nights"] is True
    assert golden in {text.uri for text in lineages[-1].texts}
    assert (sent["agreement", "DORA"], sent["drifted", "DORA"]) == (0.0, 1)
    assert (sent["agreement", "GDPR"], sent["drifted", "GDPR"]) == (1.0, 0)
    assert ("kappa", "GDPR") not in sent  # experts and judge know one category only


def test_decisions_of_experts_count_without_golden_documents(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "agreement" not in GoldenNight(nights, []).assess([]).result
    decided = {
        (f"cell {number}", CHANGED): {
            "framework": "DORA",
            "category_before": GOOD,
            "expert_category": "MISSING" if number == 0 else GOOD,
            "decided_at": "2026-03-01",
        }
        for number in range(10)
    }
    monkeypatch.setattr(output, "read_decisions", lambda nights: decided)
    assert "agreement" not in GoldenNight(nights, []).assess([]).result  # a judge does that
    night = GoldenNight(nights, [])
    task = night.run(ComplianceAssessOperator, "assess", documents=night.documents, frameworks=FRAMEWORKS)
    (whole, criterion) = read(task["agreement"])
    assert (whole["cases"], whole["agreement"], whole["base_rate"], whole["kappa"]) == (10, 0.9, 0.9, 0.0)
    assert criterion["no_better_than_chance"] is True
    assert "no better than chance" in Path(task["report"].removeprefix("file://")).read_text()
