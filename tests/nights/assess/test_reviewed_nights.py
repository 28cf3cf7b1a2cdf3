"""Nights with a review in between: decisions are found by the next night, and carried with the verdicts."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.support.human_in_the_loop", reason="human in the loop is in Airflow 3.1+")

from airflow_provider.emulator import Emulator
from airflow_provider.nights.review.grouping import group_findings
from airflow_provider.operators.feedback import ComplianceReviewAssessmentOperator
from airflow_provider.storage.jsonl import find_latest
from tests.operators.hitl import FakeHitl, sent
from tests.support.attempts import StateStore
from tests.support.nights import NightOutcome, Nights, read

GOOD, BAD, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
DECISIONS = "out/**/decisions/*.jsonl"
TEXTS = {
    "in/exit.pdf": "An exit plan with a transition period and a migration. Audit and inspection are allowed.",
    "in/empty.pdf": "Nothing of interest.",
}


def latest(folder: Path) -> list[str]:
    """Return the decisions that count: those before the feedback was sent stay, too."""
    return list(find_latest(str(path) for path in folder.glob(DECISIONS)).values())


def run_night(nights: Nights, texts: dict[str, str], **options: Any) -> NightOutcome:
    return nights.assess_texts(texts, **{"frameworks": "DORA", **options})


def rerun(nights: Nights, number: int, **options: Any) -> NightOutcome:
    """Run a night again, as a clear does."""
    documents, destination = f"file://{nights.folder}/manifest-{number}.jsonl", nights.destination(number)
    attempts = nights.attempts(number)
    attempts.try_number = 1
    task = nights.task(documents, destination=destination, frameworks="DORA", **options)
    return NightOutcome(attempts.run(task))


def review(hitl: FakeHitl, findings: Any, answer: Any = None, **kwargs: Any) -> list[dict[str, Any]]:
    """Review in a task of its own, with a form of its own."""
    hitl.store, hitl.form, hitl.response, hitl.tries = StateStore(), None, None, 0
    return review_again(hitl, findings, answer, **kwargs)


def review_again(hitl: FakeHitl, findings: Any, answer: Any = None, **kwargs: Any) -> list[dict[str, Any]]:
    given = {"findings": findings, "expert_id": "e-1", **kwargs}
    decisions: list[dict[str, Any]] = hitl.run(
        lambda: ComplianceReviewAssessmentOperator(task_id="review", **copy.deepcopy(given)), answer
    )
    return decisions


def decided(night: NightOutcome) -> dict[tuple[str, str], tuple[str, str, str]]:
    return {
        (finding["source"], finding["criterion"]): (
            finding["expert"],
            finding["expert_category"],
            finding["expert_rationale"],
        )
        for finding in night.findings
        if finding["expert"]
    }


def finding(night: NightOutcome, source: str = "in/empty.pdf") -> dict[str, Any]:
    return next(
        finding
        for finding in night.findings
        if finding["source"] == source and finding["category"] == MISSING
    )


def responses(form: dict[str, Any]) -> list[int]:
    return [row["id"] for row in read(form["form"])]


def test_a_decision_is_carried_forward_with_the_verdict_and_counted(
    service: Emulator, nights: Nights, hitl: FakeHitl, tmp_path: Path
) -> None:
    first = run_night(nights, TEXTS)
    assert not decided(first)
    wrong = finding(first)
    reviewed = review(
        hitl,
        first.result,
        {wrong["response_id"]: (GOOD, "It is in annex 4.")},
        only="insufficient",
        destination=f"file://{tmp_path}/mine/",
    )
    assert sent(service) == [("e-1", wrong["response_id"], GOOD, "It is in annex 4.")]
    (decision,) = (row for row in reviewed if row["decision"] != "none")
    assert decision["text_sha256"] == wrong["text_sha256"] != ""
    assert (decision["category_before"], decision["category_after"]) == (MISSING, GOOD)
    assert (decision["source"], decision["document"]) == ("in/empty.pdf", "empty.pdf")
    (own,) = (tmp_path / "mine").iterdir()
    (found,) = latest(tmp_path)
    assert read(str(own)) == read(found) == reviewed

    key = "in/empty.pdf", wrong["criterion"]
    second = run_night(nights, TEXTS)
    assert second.result["assessed"] == 0
    assert decided(second) == {key: ("e-1", GOOD, "It is in annex 4.")}
    (row,) = [finding for finding in second.findings if finding["expert"]]
    assert (row["category"], row["decided_at"]) == (MISSING, decision["decided_at"])
    before, after = (each.result["categories"]["DORA"] for each in (first, second))
    assert (after[MISSING], after[GOOD]) == (before[MISSING] - 1, before[GOOD] + 1)
    page = Path(second.result["report"].removeprefix("file://")).read_text()
    assert "Expert decisions" in page
    assert "It is in annex 4." in page
    assert "counts and matrix use the expert's category (1 verdict)" in page.replace("&#39;", "'")

    # The third night reads it from the index as well as from the file, and it stays one decision.
    assert decided(run_night(nights, TEXTS)) == decided(second)


def test_a_decision_outlives_its_file_with_the_verdict(
    service: Emulator, nights: Nights, hitl: FakeHitl, tmp_path: Path
) -> None:
    first = run_night(nights, TEXTS)
    review(hitl, first.result, {"rest": "agreed"}, only="insufficient")
    second = run_night(nights, TEXTS)
    for path in tmp_path.glob(DECISIONS):
        path.unlink()
    assert decided(run_night(nights, TEXTS)) == decided(second) != {}


def test_an_unchanged_night_creates_no_form(service: Emulator, nights: Nights, hitl: FakeHitl) -> None:
    first = run_night(nights, TEXTS)
    assert review(hitl, first.result) == []
    assert group_findings(first.result) == []
    assert hitl.asked == 0
    second = run_night(nights, TEXTS | {"in/empty.pdf": TEXTS["in/exit.pdf"] + " More."})
    review(hitl, second.result["findings"], "Decide later")
    assert hitl.form is not None
    changed = {finding["response_id"] for finding in second.findings if finding["changed_from"]}
    assert {int(name.partition("_")[2]) for name in list(hitl.form["params"])[1:]} == changed
    assert hitl.form["subject"] == "empty.pdf, DORA: 2 verdicts better (night of 2 Mar)"
    assert "before: missing" in hitl.form["body"]


def test_a_changed_verdict_is_asked_about_until_someone_has_decided(
    service: Emulator, nights: Nights, hitl: FakeHitl
) -> None:
    run_night(nights, TEXTS)
    changed = TEXTS | {"in/empty.pdf": TEXTS["in/exit.pdf"] + " More."}
    second = run_night(nights, changed)
    asked = {row["criterion"] for row in second.findings if row["changed_from"]}
    review(hitl, group_findings(second.result)[0], "Decide later")
    third = run_night(nights, changed)
    assert {row["criterion"] for row in third.findings if row["open_from"]} == asked
    assert not any(row["changed_from"] for row in third.findings)
    assert {row["change_reason"] for row in third.findings if row["open_from"]} == {"document"}
    (form,) = group_findings(third.result)
    first, *_ = responses(form)
    assert len(responses(form)) == len(asked) == 2
    review(hitl, form, {first: (MISSING, "It is not.")})
    assert hitl.form is not None
    assert "before: missing" in hitl.form["body"]
    assert "open since 2 Mar 2026" in hitl.form["body"].replace("\\", "")
    fourth = run_night(nights, changed)
    (form,) = group_findings(fourth.result)
    assert first not in responses(form)
    review(hitl, form, {"rest": "agreed"})
    assert group_findings(run_night(nights, changed).result) == []


def test_a_text_that_lost_more_than_half_is_a_warning(service: Emulator, nights: Nights) -> None:
    def manifest(size: int, text: str) -> dict[str, Any]:
        (row,) = read(nights.manifest({"in/empty.pdf": text}))
        return {**row, "bytes": size}

    for size, text, change in ((100, "A.", None), (43, "B.", -0.57), (43, "B.", None), (44, "C.", 0.023)):
        night = nights.assess(manifest(size, text), frameworks="DORA")
        assert {row["text_change"] for row in night.findings} == {change}
        warned = any("The text of 1 document is less than half" in one for one in night.result["warnings"])
        assert warned is (change == -0.57)


def test_a_clear_of_night_and_review_changes_nothing_and_asks_no_one(
    service: Emulator, nights: Nights, hitl: FakeHitl
) -> None:
    first = run_night(nights, TEXTS)
    rows, forms = first.findings, group_findings(first.result, only="insufficient")
    answer = {finding(first)["response_id"]: (GOOD, "Annex 4.")}
    (form,) = [form for form in forms if finding(first)["response_id"] in responses(form)]
    decisions = review(hitl, form, answer)
    for _ in range(2):
        again = rerun(nights, 1)
        assert again.findings == rows
        assert group_findings(again.result, only="insufficient") == forms
        assert review_again(hitl, form) == decisions
        assert (hitl.asked, len(sent(service))) == (1, 1)
        run_night(nights, TEXTS)  # the second time, a later night has carried the decision


def test_a_late_answer_counts_from_the_night_after(service: Emulator, nights: Nights, hitl: FakeHitl) -> None:
    first = run_night(nights, TEXTS)
    second = run_night(nights, TEXTS).findings
    review(hitl, first.result, {finding(first)["response_id"]: (GOOD, "Late.")}, only="insufficient")
    assert len(decided(run_night(nights, TEXTS))) == 1
    assert rerun(nights, 2).findings == second  # cleared: it sees what its first attempt saw


def test_mapped_forms_of_mapped_nights_name_their_criterion_and_send_their_own_feedback(
    service: Emulator, nights: Nights, hitl: FakeHitl
) -> None:
    shards = [run_night(nights, {source: text}).result for source, text in TEXTS.items()]
    forms = group_findings(shards, only="all", by="criterion")
    subjects, everything = [], []
    for hitl.map_index, form in enumerate(forms):
        everything += review(hitl, form, {responses(form)[0]: ("MISSING", "Look again.")})
        assert hitl.form is not None
        subjects.append(hitl.form["subject"])
    assert len(subjects) == len(service.frameworks()[0]["criteria"])
    assert all(" in 2 documents, DORA" in each for each in subjects)
    assert len({feedback[1] for feedback in sent(service)}) == len(forms)
    assert sum(len(read(path)) for path in latest(nights.folder)) == len(everything) == 2 * len(forms)
