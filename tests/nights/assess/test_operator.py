"""The assess operator: what comes out, night after night."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from tests.support.nights import NightOutcome, Nights

GOOD, BAD, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
TEXTS = {
    "in/exit.pdf": "An exit plan with a transition period and a migration. Audit and inspection are allowed.",
    "in/empty.pdf": "Nothing of interest.",
    "in/data.pdf": "Personal data only on documented instructions of the controller. Confidentiality.",
}


def expected(service: Emulator, texts: dict[str, str], code_name: str) -> dict[tuple[str, str], str]:
    """Apply the emulator's documented rule: half of the keywords is sufficient, none is missing."""
    (framework,) = [framework for framework in service.frameworks() if framework["codeName"] == code_name]
    verdicts = {}
    for source, text in texts.items():
        for criterion in framework["criteria"]:
            found = [word for word in criterion["keywords"] if word.lower() in text.lower()]
            share = len(found) / len(criterion["keywords"])
            verdicts[source, criterion["codeName"]] = GOOD if share >= 0.5 else BAD if found else MISSING
    return verdicts


def test_every_document_is_assessed_against_every_framework(
    service: Emulator, nights: Nights, deferrable: bool
) -> None:
    service.configure(jobs="seconds:1")
    night = nights.assess_texts(TEXTS, deferrable=deferrable)
    frameworks = [framework["codeName"] for framework in service.frameworks()]
    assert {(row["source"], row["framework"]) for row in night.rows} == {
        (source, name) for source in TEXTS for name in frameworks
    }
    assert (night.result["assessed"], night.result["carried"], night.result["failed"]) == (
        len(night.rows),
        0,
        0,
    )
    for name in frameworks:
        found = {
            (finding["source"], finding["criterion"]): finding["category"]
            for finding in night.findings
            if finding["framework"] == name
        }
        assert found == expected(service, TEXTS, name)
        counted = night.result["categories"][name]
        assert counted == {category: list(found.values()).count(category) for category in counted}
    for row in night.rows:
        content = Path(row["results_path"].removeprefix("file://")).read_bytes()
        assert row["results_sha256"] == hashlib.sha256(content).hexdigest()
        assert row["text_sha256"] == hashlib.sha256(TEXTS[row["source"]].encode()).hexdigest()
    assert service.counters()["logins"] == 1
    assert "The first night" in Path(night.result["report"].removeprefix("file://")).read_text()


def test_a_second_night_sends_nothing_and_keeps_every_verdict(service: Emulator, nights: Nights) -> None:
    first = nights.assess_texts(TEXTS)
    before = service.count("submit_assessment")
    second = nights.assess_texts(TEXTS)
    assert service.count("submit_assessment") == before
    assert second.result["carried"] == len(first.rows)
    assert second.result["changed"] == 0
    for old, new in zip(first.findings, second.findings, strict=True):
        same = ("source", "criterion", "category", "rationale", "response_id", "first_seen", "assessment_id")
        assert {name: old[name] for name in same} == {name: new[name] for name in same}
        assert (new["carried"], new["changed_from"]) == (True, None)
    origin = second.rows[0]["carried_from"]
    assert (origin["run"], origin["assessment_id"]) == ("d/run-1", first.rows[0]["assessment_id"])
    # A third night names the origin, not the night between.
    assert nights.assess_texts(TEXTS).rows[0]["carried_from"] == origin


def test_a_changed_document_is_assessed_again_and_only_that(service: Emulator, nights: Nights) -> None:
    nights.assess_texts(TEXTS, frameworks="DORA")
    before = service.count("submit_assessment")
    changed = TEXTS | {"in/empty.pdf": TEXTS["in/exit.pdf"] + " Now with more."}
    night = nights.assess_texts(changed, frameworks="DORA")
    assert service.count("submit_assessment") - before == 1
    assert (night.result["assessed"], night.result["carried"]) == (1, 2)
    better = {
        finding["criterion"]: finding["changed_from"] for finding in night.findings if finding["changed_from"]
    }
    assert better == {"DORA-30-3-f": MISSING, "DORA-30-3-e": MISSING}
    assert night.result["changed"] == 2


def test_a_changed_framework_is_assessed_again_and_only_that(service: Emulator, nights: Nights) -> None:
    nights.assess_texts(TEXTS)
    frameworks = copy.deepcopy(service.frameworks())
    for criterion in frameworks[0]["criteria"]:
        criterion["keywords"] = ["nothing"]  # which the service does not list
    frameworks[0]["criteria"][0]["description"] += " As amended."
    service.set_frameworks(frameworks)
    before = service.count("submit_assessment")
    night = nights.assess_texts(TEXTS)
    assert service.count("submit_assessment") - before == len(TEXTS)
    assert {row["framework"] for row in night.rows if not row["carried_from"]} == {frameworks[0]["codeName"]}
    causes = {row["criterion"]: row["change_reason"] for row in night.findings if row["changed_from"]}
    amended, *others = (criterion["codeName"] for criterion in frameworks[0]["criteria"])
    assert causes == {amended: "framework"} | dict.fromkeys(others, "other")


def test_rules_are_stored_once_in_each_version(service: Emulator, nights: Nights) -> None:
    first = nights.assess_texts(TEXTS)
    frameworks = copy.deepcopy(service.frameworks())
    frameworks[0]["criteria"][0]["description"] += " As amended."
    service.set_frameworks(frameworks)
    second = nights.assess_texts(TEXTS)
    folder = nights.folder / "out/_evidence/rules"
    stored = {path.stem: path.read_bytes() for path in folder.iterdir()}
    assert {hashlib.sha256(content).hexdigest() for content in stored.values()} == stored.keys()
    rows = [*first.rows, *second.rows, *first.findings, *second.findings]
    assert {row["framework_fingerprint"] for row in rows} == stored.keys()
    assert len(stored) == len(frameworks) + 1
    assert sum(b" As amended." in content for content in stored.values()) == 1


def test_a_dry_run_says_what_it_would_do_and_sends_nothing(service: Emulator, nights: Nights) -> None:
    nights.assess_texts(TEXTS, frameworks="DORA")
    before = service.counters()["total"]
    documents = nights.manifest(TEXTS | {"in/empty.pdf": "Changed.", "in/new.pdf": "New."})
    plan = nights.attempts(2).run(nights.task(documents, frameworks="DORA", dry_run=True))
    assert (plan["new"], plan["changed"], plan["carried"], plan["requests"]) == (1, 1, 2, 6)
    assert plan["seconds"] >= 0
    assert service.count("submit_assessment") == 3
    assert service.counters()["total"] - before <= 2  # the frameworks, and perhaps a login


def test_a_dry_run_of_a_cleared_run_counts_only_what_it_has_not_assessed(
    service: Emulator, nights: Nights
) -> None:
    documents, attempts = nights.manifest(TEXTS), nights.attempts(1)
    service.fail("submit_assessment", status=422, times=1)
    attempts.run(nights.task(documents, frameworks="DORA", max_failed=1, concurrency=1))
    plan = attempts.run(nights.task(documents, frameworks="DORA", dry_run=True))
    assert {name: plan[name] for name in ("new", "changed", "carried", "kept", "requests")} == {
        "new": 1,
        "changed": 0,
        "carried": 0,
        "kept": 2,
        "requests": 3,
    }
    assert attempts.run(nights.task(documents, frameworks="DORA"))["assessed"] == 3


def test_a_failed_cell_is_a_row_that_the_next_attempt_alone_tries_again(
    service: Emulator, nights: Nights
) -> None:
    documents, attempts = nights.manifest(TEXTS), nights.attempts(1)
    service.fail("submit_assessment", status=422, times=1)
    with pytest.raises(exc.ComplianceAssessError, match="1 of 3 assessments failed"):
        attempts.run(nights.task(documents, frameworks="DORA"))
    (path,) = Path(nights.folder).glob("out/*/_assess/*/*/*/assessments.jsonl")
    states = [json.loads(line)["status"] for line in path.read_text().splitlines()]
    assert sorted(states) == ["COMPLETED", "COMPLETED", "FAILED"]
    before = service.count("submit_assessment")
    night = NightOutcome(attempts.run(nights.task(documents, frameworks="DORA")))
    assert service.count("submit_assessment") - before == 1
    assert (night.result["assessed"], night.result["failed"]) == (3, 0)
    assert sorted(row["try_number"] for row in night.rows) == [1, 1, 2]  # the attempt that has finished it
    assert {row["run_id"] for row in night.rows} == {"run-1"}
    assert all(row["provider_version"] for row in night.rows)


def test_a_document_that_the_service_has_forgotten_fails_with_advice(
    service: Emulator, nights: Nights
) -> None:
    rows = [nights.manifest({"in/a.pdf": "An exit plan."}), {"source": "in/b.pdf", "uuid": "forgotten"}]
    result = nights.assess(rows, frameworks="DORA", max_failed=1).result
    failed = [row for row in NightOutcome(result).rows if row["status"] == "FAILED"]
    assert [row["source"] for row in failed] == ["in/b.pdf"]
    assert "does not know job forgotten" in failed[0]["error"]
    assert "Clear the ingest task, which submits it again unless `delete_after` is set" in failed[0]["error"]
    assert service.count("submit_file") == 0


def test_uuids_alone_are_enough(service: Emulator, nights: Nights) -> None:
    uuid = service.add_job(text="An exit plan.", status="COMPLETED")
    nights.number = 1
    first = nights.assess([uuid], frameworks="DORA")
    assert first.rows[0]["text_sha256"] == hashlib.sha256(b"An exit plan.").hexdigest()
    nights.number = 2
    second = nights.assess(uuid, frameworks="DORA")
    assert second.result["carried"] == 1


def test_documents_without_a_text_are_counted_and_named(service: Emulator, nights: Nights) -> None:
    documents = [nights.manifest({"in/exit.pdf": "x"}), nights.manifest({"in/b.pdf": "y"}, status="FAILED")]
    result = nights.assess(documents, frameworks="DORA").result
    assert (result["assessed"], result["without_text"]) == (1, 1)
    assert "b.pdf" in Path(result["report"].removeprefix("file://")).read_text()


def test_nothing_to_assess_is_a_success(service: Emulator, nights: Nights) -> None:
    nights.number = 1
    result = nights.assess([]).result
    assert (result["assessed"], result["carried"], result["failed"]) == (0, 0, 0)


@pytest.mark.parametrize("given", [(), [], "[]", None])
def test_an_empty_list_of_frameworks_means_all(service: Emulator, nights: Nights, given: Any) -> None:
    result = nights.assess_texts({"in/a.pdf": "An exit."}, frameworks=given).result
    assert list(result["categories"]) == ["DORA", "GDPR"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"frameworks": ["DORA", "SOX"]}, r"no framework 'SOX'.*DORA \(id 1\)"),
        ({"payload": {"contentUuid": "{document[uid]}"}}, r"document\[uid\]"),
    ],
)
def test_an_unknown_framework_or_field_is_refused_before_anything_is_sent(
    service: Emulator, nights: Nights, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        nights.assess_texts(TEXTS, **given)
    assert service.count("submit_assessment") == 0


def test_a_payload_of_its_own_is_sent_and_tells_its_verdicts_apart(service: Emulator, nights: Nights) -> None:
    nights.assess_texts({"in/exit.pdf": "x"}, frameworks="DORA")
    payload = {"contentUuids": ["{document[uuid]}"], "frameworkId": "{framework[id]}", "note": "second"}
    night = nights.assess_texts({"in/exit.pdf": "x"}, frameworks="DORA", payload=payload)
    assert night.result["assessed"] == 1
    assert service.assessments()[0]["payload"]["note"] == "second"


def test_a_function_as_payload_is_refused_with_what_to_do(nights: Nights) -> None:
    with pytest.raises(exc.ComplianceInputError, match="upstream @task"):
        nights.task([], payload=lambda document, framework: {})


def test_a_framework_without_criteria_gives_no_findings_and_no_error(
    service: Emulator, nights: Nights
) -> None:
    service.set_frameworks([{"id": 9, "codeName": "NEW", "name": "New", "criteria": []}])
    night = nights.assess_texts({"a": "x"})
    assert (night.result["assessed"], night.findings) == (1, [])
    assert night.result["categories"] == {"NEW": {}}
