"""What nights carry forward and compare with, in any order of nights, clears and shards."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.service import state as emulated
from airflow_provider.emulator.service.catalog import INSUFFICIENT, MISSING, SUFFICIENT
from airflow_provider.nights.assess.cells import Cell
from airflow_provider.nights.assess.task import KIND
from airflow_provider.nights.assess.verdicts import read_earlier_verdicts
from airflow_provider.nights.index.nights import EarlierNights, Night, TaskKey
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.storage.locations import Location
from tests.support.attempts import Attempts
from tests.support.jobs import completed
from tests.support.nights import NightOutcome

CATEGORIES = {"A": SUFFICIENT, "B": INSUFFICIENT, "C": MISSING}
CRITERIA = [{"codeName": "D-0", "name": "Exit"}, {"codeName": "D-1", "name": "Audit"}]
FRAMEWORK = {"id": 1, "codeName": "DORA", "name": "DORA", "criteria": CRITERIA}
Run = tuple[int, str, int]  # day, task, map index
Said = dict[tuple[str, str], tuple[str | None, int, bool]]
"""By document and criterion: `changed_from`, the day of `first_seen`, `carried`."""


@dataclass
class History:
    """Runs of tasks below one root, in any order; a run that is repeated is cleared."""

    service: Emulator
    folder: Path
    attempts: dict[Run, Attempts] = field(default_factory=dict)
    tasks: dict[Run, ComplianceAssessOperator] = field(default_factory=dict)

    def run(self, run: Run, texts: dict[str, str]) -> NightOutcome:
        """Run a task of a day on texts, by source; or clear it."""
        task, attempts = self.prepare(run, texts)
        attempts.clear()
        return NightOutcome(attempts.run(task))

    def prepare(self, run: Run, texts: dict[str, str], **options: Any) -> tuple[Any, Attempts]:
        """Return the task of a run, and its attempts."""
        day, task_id, map_index = run
        if run not in self.tasks:
            date = f"2026-11-{day:02}"
            self.tasks[run] = ComplianceAssessOperator(
                task_id=task_id,
                documents=[
                    {"source": source, "uuid": completed(self.service, text=text), "sha256": text}
                    for source, text in texts.items()
                ],
                destination=f"file://{self.folder}/dt={date}/",
                payload={"contentUuid": "{document[uuid]}", "framework": "{framework[id]}", "task": task_id},
                poll_interval=0.1,
                **options,
            )
            dag_run = SimpleNamespace(logical_date=datetime.fromisoformat(date).replace(tzinfo=UTC))
            identity = {"task_id": task_id, "run_id": f"run-{day}", "map_index": map_index}
            self.attempts[run] = Attempts(identity=identity, context={"dag_run": dag_run})
        return self.tasks[run], self.attempts[run]

    def night(self, day: int, text: str, task: str = "t") -> NightOutcome:
        """Run a task of a day on one document."""
        return self.run((day, task, -1), {"in/a": text})


def assess_by_letter(text: str, criterion: dict[str, Any]) -> tuple[str, str]:
    """Return the verdict on a criterion: each has its letter in the text, or all have the same."""
    return CATEGORIES[(text * 2)[int(criterion["codeName"][-1])]], "because"


@pytest.fixture
def history(service: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setattr(emulated, "assess", assess_by_letter)
    service.set_frameworks([FRAMEWORK])
    return History(service, tmp_path)


def said_by(findings: list[dict[str, Any]]) -> Said:
    return {
        (row["source"], row["criterion"]): (
            row["changed_from"],
            int(row["first_seen"][8:10]),
            row["carried"],
        )
        for row in findings
    }


def verdict(night: NightOutcome) -> tuple[str | None, int, bool]:
    """Return what the findings of a night say of earlier nights, which is the same for all criteria."""
    (said,) = set(said_by(night.findings).values())
    return said


@pytest.mark.parametrize(
    ("nights", "expected"),
    [
        # Backfills between two nights: only the first one reports the change.
        (
            [(1, "A"), (4, "B"), (2, "B"), (3, "B")],
            [(None, 1, False), (SUFFICIENT, 4, False), (SUFFICIENT, 2, False), (None, 2, True)],
        ),
        # Backfills before the first night.
        (
            [(3, "A"), (1, "A"), (2, "B")],
            [(None, 3, False), (None, 1, False), (SUFFICIENT, 2, False)],
        ),
        # A backfill is compared with the night before it, not with later nights.
        (
            [(1, "C"), (3, "C"), (4, "B"), (5, "B"), (2, "A")],
            [
                (None, 1, False),
                (None, 1, True),
                (MISSING, 4, False),
                (None, 4, True),
                (MISSING, 2, False),
            ],
        ),
        # A night that was missed, and a text that returns.
        (
            [(1, "A"), (4, "B"), (7, "A")],
            [(None, 1, False), (SUFFICIENT, 4, False), (INSUFFICIENT, 7, True)],
        ),
    ],
)
def test_nights_in_any_order_are_compared_with_the_night_before_them(
    history: History, nights: list[tuple[int, str]], expected: list[Any]
) -> None:
    assert [verdict(history.night(day, text)) for day, text in nights] == expected


def test_tasks_with_other_payloads_do_not_report_changes_of_each_other(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    categories = {"one": SUFFICIENT, "two": MISSING}
    for day in (1, 2):
        for task, category in categories.items():
            monkeypatch.setattr(emulated, "assess", lambda *_, category=category: (category, "because"))
            night = history.night(day, "A", task)
            assert (night.result["changed"], night.findings[0]["category"]) == (0, category)


def test_a_task_that_is_new_is_compared_with_another_one_with_the_same_payload(history: History) -> None:
    first = history.night(1, "A")
    task, attempts = history.prepare((2, "renamed", -1), {"in/a": "B"})
    task.payload = history.tasks[1, "t", -1].payload
    assert first.result["changed"] == 0
    assert verdict(NightOutcome(attempts.run(task))) == (SUFFICIENT, 2, False)


def test_a_clear_sees_a_night_that_was_published_meanwhile_as_its_first_attempt_did(
    history: History, service: Emulator
) -> None:
    history.night(1, "A")
    service.configure(jobs="manual")
    task, attempts = history.prepare((3, "t", -1), {"in/a": "B"}, deferrable=True)

    def run_the_night_before(number: int) -> None:
        service.configure(jobs="instant")
        assert verdict(history.night(2, "C"))[0] == SUFFICIENT

    attempts.while_deferred = run_the_night_before
    first = NightOutcome(attempts.run(task))
    rows, findings = first.rows, first.findings
    assert verdict(first)[0] == MISSING
    again = history.run((3, "t", -1), {})
    assert (again.rows, again.findings, again.result) == (rows, findings, first.result)


def test_another_account_is_another_cell_and_is_not_compared(
    history: History, service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert history.night(1, "A").result["assessed"] == 1
    service.set_frameworks([FRAMEWORK | {"criteria": CRITERIA[:1]}])
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", other_account(service))
    second = history.night(2, "B").result
    assert (second["assessed"], second["changed"], second["gone"], second["warnings"]) == (1, 0, 0, [])


def test_an_account_that_is_edited_while_the_task_is_deferred_gets_cells_of_its_own(
    history: History, service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.configure(jobs="manual")
    task, attempts = history.prepare((1, "t", -1), {"in/a": "A"}, deferrable=True)

    def edit(number: int) -> None:
        service.configure(jobs="instant")
        monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", other_account(service))
        del task.hook  # a task resumes in another process

    before = task.hook.account_digest
    attempts.while_deferred = edit
    with pytest.raises(exc.ComplianceJobError, match="A retry of the submit"):
        attempts.run(task)
    (row,) = NightOutcome(attempts.run(task)).rows
    assert (row["account"] == before, row["status"], row["attempts"]) == (False, "COMPLETED", 2)
    (carried,) = history.night(2, "A").rows  # with the account that the row names
    assert (carried["cell"], carried["assessment_id"]) == (row["cell"], row["assessment_id"])


@pytest.mark.parametrize("is_same", [True, False])
def test_a_verdict_that_another_account_has_published_is_not_carried(history: History, is_same: bool) -> None:
    (row,) = history.night(1, "A").rows
    night = Night("2026-11-02T00:00:00+00:00", "d/run-2")
    root, account = Location(f"file://{history.folder}/"), row["account"] if is_same else "other"
    nights = EarlierNights(root, KIND, night, TaskKey("d", "t"), account)
    cell = Cell.from_record(row).reset()
    found = read_earlier_verdicts(nights, [cell])
    assert (cell.key in found.carried) is is_same
    assert found.compared_with == ("2026-11-01T00:00:00+00:00" if is_same else "")


def test_the_report_names_the_newest_night_that_documents_are_compared_with(history: History) -> None:
    history.run((1, "t", -1), {"in/a": "A", "in/b": "B"})
    assert history.run((2, "t", -1), {"in/b": "B"}).result["carried"] == 1  # its row is not the first
    last = history.run((3, "t", -1), {"in/a": "A", "in/b": "B", "in/c": "A"})
    assert (last.result["carried"], last.result["assessed"]) == (3, 0)  # one of an equal text
    assert "2 Nov 2026, 00:00 UTC" in Path(last.result["report"].removeprefix("file://")).read_text()


def other_account(service: Emulator) -> str:
    """Return a connection to the same emulator that counts as one to another service."""
    return json.dumps(service.connection()).replace("127.0.0.1", "localhost")


@pytest.mark.parametrize("table", ["assessments", "findings"])
def test_a_table_that_was_edited_is_not_carried(
    history: History, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = history.night(1, "C")
    path = Path(first.result[table].removeprefix("file://"))
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        content = file.read()
    with opened(path, "wt") as file:
        file.write(content.replace(MISSING, SUFFICIENT).replace("COMPLETED", "COMPLETED "))
    second = history.night(2, "C")
    assert (second.result["assessed"], second.findings[0]["category"]) == (1, MISSING)
    assert "was changed after it was published" in caplog.text


def test_a_night_whose_findings_are_gone_leaves_the_comparison_to_the_one_before(history: History) -> None:
    history.night(1, "A")
    second = history.night(2, "B")
    Path(second.result["findings"].removeprefix("file://")).unlink()
    assert verdict(history.night(3, "C"))[0] == SUFFICIENT


def test_a_criterion_that_a_night_did_not_answer_is_compared_with_an_older_one(
    history: History, service: Emulator
) -> None:
    history.night(1, "A")
    service.fail("get_assessment_results", body={"results": []}, times=1)
    assert history.night(2, "B").result["unanswered"] == len(CRITERIA)
    assert verdict(history.night(3, "C"))[0] == SUFFICIENT


def test_a_tree_that_was_moved_is_carried_from_its_new_place(history: History) -> None:
    history.night(1, "A")
    moved = History(history.service, history.folder / "moved")
    moved.folder.mkdir()
    for path in [each for each in history.folder.iterdir() if each != moved.folder]:
        shutil.move(path, moved.folder / path.name)
    (row,) = moved.night(2, "A").rows
    assert row["carried_from"]["night"].startswith("2026-11-01")
    assert row["results_path"].startswith(f"file://{moved.folder}/dt=2026-11-01/results/")
    assert Path(row["results_path"].removeprefix("file://")).exists()


# -- a simple model of what each run must say

DOCUMENTS, TEXTS = ("in/a", "in/b"), ("AA", "AB", "CB", "CC")
RUNS = st.lists(
    st.tuples(
        st.integers(1, 4),  # day
        st.sampled_from(["t", "u"]),  # task, each with a payload of its own
        st.tuples(*[st.tuples(st.sampled_from(TEXTS), st.integers(0, 1)) for _ in DOCUMENTS]),  # text, shard
    ),
    min_size=2,
    max_size=6,
)


@dataclass
class Model:
    """The verdicts of each day and task, by document and criterion: category, and the day since when."""

    said: dict[tuple[int, str], dict[tuple[str, str], tuple[str, int]]] = field(default_factory=dict)
    texts: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)

    def expect(self, day: int, task: str, texts: dict[str, str]) -> Said:
        """Return what a run must say."""
        earlier = sorted((key for key in self.said if key[0] < day and key[1] == task), reverse=True)
        expected: Said = {}
        said: dict[tuple[str, str], tuple[str, int]] = {}
        for source, text in texts.items():
            is_carried = any(text in self.texts[key].values() for key in earlier)
            for number, criterion in enumerate(("D-0", "D-1")):
                verdict, category = (source, criterion), CATEGORIES[text[number]]
                before, since = self.said[earlier[0]][verdict] if earlier else (None, day)
                said[verdict] = category, since if before == category else day
                expected[verdict] = None if before == category else before, said[verdict][1], is_carried
        self.said[day, task], self.texts[day, task] = said, texts
        return expected


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(RUNS)
def test_any_history_says_what_a_simple_model_says(history: History, runs: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = History(history.service, Path(folder))
        model = Model()
        written: dict[Run, tuple[Any, Any, Any]] = {}
        for day, task, placed in runs:
            texts = {source: text for source, (text, _) in zip(DOCUMENTS, placed, strict=True)}
            shards = {source: shard for source, (_, shard) in zip(DOCUMENTS, placed, strict=True)}
            is_cleared = (day, task) in model.said
            expected = {} if is_cleared else model.expect(day, task, texts)
            found: Said = {}
            submitted = own.service.count("submit_assessment")
            mine = [run for run in written if run[:2] == (day, task)]
            for run in mine if is_cleared else [(day, task, shard) for shard in sorted(set(shards.values()))]:
                of_shard = {source: text for source, text in texts.items() if shards[source] == run[2]}
                night = own.run(run, of_shard)
                outcome = night.rows, night.findings, night.result
                assert written.setdefault(run, outcome) == outcome
                found |= said_by(night.findings)
            if is_cleared:
                assert own.service.count("submit_assessment") == submitted
            else:
                assert found == expected


def test_rows_say_what_has_changed_a_verdict(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    def causes(night: NightOutcome) -> tuple[Any, ...]:
        (assessment,) = night.rows
        return assessment["change_reason"], *dict.fromkeys(row["change_reason"] for row in night.findings)

    assert causes(history.night(1, "A")) == (None, None)
    assert causes(history.night(2, "A")) == (None, None)  # carried forward
    assert causes(history.night(3, "AB")) == ("document", None, "document")  # one of two verdicts is the same
    assert causes(history.night(4, "A")) == ("document", None, "document")  # carried from an earlier night
    history.service.set_frameworks([FRAMEWORK | {"description": "Changed."}])
    # The framework is new, but not this criterion: what the text has changed is open still.
    assert causes(history.night(5, "A")) == ("framework", None, "document")
    monkeypatch.setattr(emulated, "assess", lambda *_: (MISSING, "Another one."))
    task, attempts = history.prepare((6, "t", -1), {"in/a": "A"}, changed_only=False)
    assert causes(NightOutcome(attempts.run(task))) == ("judge", "judge")
