from __future__ import annotations

import pytest

from airflow_provider.client.models import Framework
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.assess.cells import ASSESSMENT_COLUMNS, Cell, make_cells, select_frameworks
from airflow_provider.nights.assess.inputs import AssessedDocument
from airflow_provider.nights.assess.payloads import DEFAULT_PAYLOAD, PayloadTemplate
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, PENDING, READY, SKIPPED, SUBMITTED

DORA = Framework.model_validate(
    {"id": 1, "codeName": "DORA", "name": "Resilience", "criteria": [{"codeName": "D-1", "name": "Exit"}]}
)
GDPR = Framework.model_validate({"id": 2, "codeName": "GDPR", "criteria": [{"codeName": "G-1"}]})

PAYLOAD = PayloadTemplate(DEFAULT_PAYLOAD)


def document(name: str = "a", sha256: str = "ab" * 32) -> AssessedDocument:
    return AssessedDocument(f"in/{name}", f"uuid-{name}", sha256, {"uuid": f"uuid-{name}"})


def cell(**changes: str) -> Cell:
    made = make_cells([document()], select_frameworks([DORA], []), PAYLOAD)[0]
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_there_is_a_cell_for_each_document_and_framework() -> None:
    cells = make_cells([document("a"), document("b")], select_frameworks([DORA, GDPR], []), PAYLOAD)
    assert [(cell.source, cell.framework) for cell in cells] == [
        ("in/a", "DORA"),
        ("in/a", "GDPR"),
        ("in/b", "DORA"),
        ("in/b", "GDPR"),
    ]
    assert len({cell.key for cell in cells}) == 4
    assert cells[0].label == "in/a (DORA)"


@pytest.mark.parametrize("wanted", [["DORA"], ["1"], ["DORA", "1"]])
def test_a_framework_is_found_by_id_or_code_name_once(wanted: list[str]) -> None:
    found = select_frameworks([DORA, GDPR], wanted)
    assert [each.id for each in found] == ["1"]
    assert found[0].fields == {"id": "1", "codeName": "DORA", "name": "Resilience"}
    assert found[0].criteria == (("D-1", "Exit"),)


def test_an_unknown_framework_is_named_with_those_that_exist() -> None:
    with pytest.raises(ComplianceInputError, match=r"no framework 'SOX'.*DORA \(id 1\), GDPR \(id 2\)"):
        select_frameworks([DORA, GDPR], ["SOX", "DORA"])


def test_a_service_without_frameworks_is_an_error() -> None:
    with pytest.raises(ComplianceInputError, match="lists no frameworks") as raised:
        select_frameworks([], [])
    assert raised.value.transient  # a service that has just started may list none yet


def test_an_id_counts_before_a_code_name_and_no_framework_is_lost() -> None:
    one, two = Framework(id="1", code_name="2"), Framework(id="2", code_name="1")
    assert [framework.id for framework in select_frameworks([one, two], [])] == ["1", "2"]
    assert [framework.id for framework in select_frameworks([one, two], ["2"])] == ["2"]


def test_frameworks_with_the_same_code_name_are_told_apart() -> None:
    twin = GDPR.model_copy(update={"code_name": "DORA"})
    found = select_frameworks([DORA, twin, DORA], [])
    assert [(each.id, each.code_name) for each in found] == [("1", "DORA (id 1)"), ("2", "DORA (id 2)")]
    assert [each.fields["codeName"] for each in found] == ["DORA", "DORA"]
    assert [framework.code_name for framework in select_frameworks([DORA, twin], ["2"])] == ["DORA (id 2)"]
    with pytest.raises(ComplianceInputError, match=r"more than one framework 'DORA': use ids.*\(id 2\)"):
        select_frameworks([DORA, twin], ["DORA"])


def test_two_frameworks_with_the_same_id_are_refused_if_they_are_wanted() -> None:
    twin = GDPR.model_copy(update={"id": "1"})
    assert [framework.id for framework in select_frameworks([DORA, twin, GDPR], ["2"])] == ["2"]
    with pytest.raises(ComplianceInputError, match="more than one framework '1'"):
        select_frameworks([DORA, twin], [])


@pytest.mark.parametrize(
    "changed", ["text_sha256", "framework_id", "framework_fingerprint", "payload_digest", "account"]
)
def test_the_digest_of_a_cell_is_that_of_its_input(changed: str) -> None:
    assert cell().digest == cell(uuid="other", source="moved").digest != cell(**{changed: "x"}).digest


def test_without_a_text_hash_there_is_no_digest() -> None:
    assert cell(text_sha256="").digest == ""


def test_a_cell_reads_back_from_journal_and_row() -> None:
    one = cell(job_id="a-1")
    one.advance(SUBMITTED)
    assert Cell.from_record(one.record()) == one
    one.advance(READY)
    one.results_path, one.results_sha256 = "s3://b/r.json", "cd" * 32
    one.advance(COMPLETED)
    assert Cell.from_record(one.row()) == Cell.from_record(one.record()) == one
    row = one.row()
    assert (row["cell"], row["submitted_at"], row["unanswered"]) == (one.digest, one.submitted_at or None, 0)


def test_a_carried_cell_is_completed_in_its_row_and_carried_when_it_is_read_back() -> None:
    one = cell(job_id="a-1")
    one.carried_from = {"run": "last", "assessment_id": "a-1"}
    one.advance(SKIPPED)
    assert (one.row()["status"], one.row()["carried_from"]) == ("COMPLETED", one.carried_from)
    assert Cell.from_record(one.row()).state is SKIPPED


def test_a_reset_cell_keeps_what_it_is() -> None:
    one = cell(job_id="a-1")
    one.attempts = 2
    one.fail("broken")
    again = one.for_retry()
    assert (again.state, again.job_id, again.error, again.attempts) == (PENDING, "", "", 2)
    assert again.is_same_input(one)
    assert one.state is FAILED


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "judge"),
        ({"payload_digest": "p"}, "judge"),
        ({"framework_fingerprint": "f"}, "framework"),
        ({"text_sha256": "t"}, "document"),
        ({"text_sha256": "t", "framework_fingerprint": "f"}, "both"),
        ({"text_sha256": ""}, ""),
    ],
)
def test_a_verdict_may_change_because_of_its_document_its_framework_both_or_the_judge(
    changes: dict[str, str], cause: str
) -> None:
    assert cell(**changes).find_cause(cell().row()) == cause


def test_a_row_has_every_column_also_before_there_is_a_verdict() -> None:
    row = cell().row()
    assert tuple(row) == ASSESSMENT_COLUMNS
    assert {name for name, value in row.items() if value == 0} == {"attempts", "findings", "unanswered"}
    assert (row["change_reason"], cell(change_reason="judge").row()["change_reason"]) == (None, "judge")
