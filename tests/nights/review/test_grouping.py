"""Grouping the findings of a night into forms, and reading one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.nights.review.grouping import group_findings, load_findings
from airflow_provider.nights.review.selection import Selection, select
from tests.support.effort import growth

GOOD, BAD, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"


def row(number: int | None, category: str = MISSING, **changes: Any) -> dict[str, Any]:
    return {
        "source": "in/a.pdf",
        "framework": "DORA",
        "criterion": f"D-{number}",
        "title": "Ausstieg ü",
        "category": category,
        "rationale": "why " * 50,
        "response_id": number,
        "changed_from": None,
        **changes,
    }


def table(path: Path, rows: Iterable[Any], name: str = "findings.jsonl") -> str:
    (path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file://{path}/{name}"


def selected(given: Any, limit: int = 50) -> Selection:
    findings, _ = load_findings(given)
    return select(findings, limit)


def asked(selection: Selection) -> list[int | None]:
    return [finding.id for finding in selection.asked]


def ids(forms: list[dict[str, Any]]) -> list[list[int]]:
    paths = [Path(form["form"].removeprefix("file://")) for form in forms]
    return [[json.loads(line)["id"] for line in path.read_text().splitlines()] for path in paths]


def test_a_form_is_about_one_document_or_one_criterion(tmp_path: Path) -> None:
    rows = [row(1), row(2), row(3, source="in/b.pdf", criterion="D-1"), row(4, GOOD, source="in/b.pdf")]
    uri = table(tmp_path, rows)
    assert ids(group_findings(uri, only="insufficient")) == [[1, 2], [3]]
    assert ids(group_findings(uri, only="insufficient", by="criterion")) == [[1, 3], [2]]
    assert ids(group_findings(uri, only="all", by="document")) == [[1, 2], [3, 4]]
    assert ids(group_findings(uri)) == []


@pytest.mark.parametrize("cause", ["framework", "judge"])
def test_a_changed_criterion_of_several_documents_is_one_form(tmp_path: Path, cause: str) -> None:
    def changed(number: int, document: str, criterion: str, reason: str) -> dict[str, Any]:
        return row(number, source=document, criterion=criterion, change_reason=reason, changed_from=GOOD)

    rows = [
        changed(1, "a", "D-1", cause),
        changed(2, "a", "D-2", cause),
        changed(3, "b", "D-1", cause),
        changed(4, "b", "D-3", "document"),
        changed(5, "c", "D-1", "both"),
        changed(6, "c", "D-1", cause) | {"framework": "GDPR"},
    ]
    assert ids(group_findings(table(tmp_path, rows))) == [[1, 3], [2], [4], [5, 6]]


def test_a_form_has_at_most_max_findings(tmp_path: Path) -> None:
    uri = table(tmp_path, [row(number) for number in range(7)])
    assert ids(group_findings(uri, only="all", max_findings=3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert ids(group_findings(uri, only="all", max_findings=1)) == [[number] for number in range(7)]
    assert (tmp_path / "forms").is_dir()


def test_a_limit_keeps_the_most_urgent_and_log_and_forms_say_how_many_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [row(1, GOOD), row(2, BAD), row(3), row(4, BAD, changed_from=GOOD), row(5, source="in/b.pdf")]
    uri = table(tmp_path, rows)
    with caplog.at_level(logging.INFO):
        forms = group_findings(uri, only="all", limit=3)
    assert ids(forms) == [[4, 3], [5]]
    assert "Findings to review (all): 3. Left out: 2 beyond the limit." in caplog.text
    (warning,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "No one is asked about 2 findings: raise the limit of 3" in warning.getMessage()
    assert [load_findings(form)[1] for form in forms] == [2, 2]
    assert load_findings(group_findings(uri, only="all", limit=5))[1] == 0
    assert asked(selected(uri, limit=2)) == [4, 3]


def test_a_form_is_asked_as_it_was_grouped(tmp_path: Path) -> None:
    first = table(tmp_path, [row(1), row(2, source="in/ü.pdf"), row(3)], "one.jsonl")
    second = table(tmp_path, [row(4), row(5, BAD, source="in/c.pdf", criterion="D-1")], "two.jsonl")
    assessed = [{"findings": first, "assessed": 3}, {"findings": second}]
    forms = group_findings(assessed, only="all", by="criterion")
    assert ids(forms) == [[1, 5], [2], [3], [4]]
    for form, expected in zip(forms, ids(forms), strict=True):
        assert load_findings(json.loads(json.dumps(form)))[1] == 0
        assert asked(selected(form)) == expected
    assert [finding.findings for finding in selected(forms[0]).asked] == [first, second]
    assert "why" not in json.dumps(forms)
    table(tmp_path, [], "one.jsonl")
    assert asked(selected(forms[0])) == [1, 5]


def test_a_night_that_was_cleared_keeps_its_forms_and_asks_about_new_verdicts(tmp_path: Path) -> None:
    uri = table(tmp_path, [row(1), row(2), row(3, source="in/b.pdf")])
    forms = group_findings(uri, only="insufficient")
    assert group_findings(uri, only="insufficient") == forms
    assert ids(group_findings(uri, only="all")) == ids(forms)  # other options are other forms
    rows = [row(1, BAD), row(2), row(3, GOOD, source="in/b.pdf"), row(4, source="in/c.pdf")]
    uri = table(tmp_path, rows, "findings.2.jsonl")
    again = group_findings(uri, only="insufficient")
    assert ids(again) == [[1, 2], [3], [4], [1]]
    assert [form["form"] for form in again[:2]] == [form["form"] for form in forms]
    assert [form["outdated"] for form in again] == [["1"], ["3"], [], []]
    assert [asked(selected(form)) for form in again] == [[2], [], [4], [1]]
    assert group_findings(uri, only="insufficient") == again


def test_a_limit_is_not_raised_by_grouping_again(tmp_path: Path) -> None:
    uri = table(tmp_path, [row(number) for number in range(5)])
    assert [ids(group_findings(uri, only="all", limit=2)) for _ in range(2)] == [[[0, 1]], [[0, 1]]]


@pytest.mark.parametrize("how", ["uri", "dict", "list", "json", "repr", "nested"])
def test_findings_may_be_given_in_many_ways(tmp_path: Path, how: str) -> None:
    uri = table(tmp_path, [row(1)])
    result = {"findings": uri, "assessments": "x"}
    given = {
        "uri": uri,
        "dict": result,
        "list": [result],
        "json": json.dumps(result),
        "repr": str([result]),
        "nested": [[result], uri],
    }[how]
    assert asked(selected(given)) == [1]
    assert ids(group_findings(given, only="all")) == [[1]]


@pytest.mark.parametrize("given", [[], [None], {"dry_run": True, "new": 3}])
def test_nothing_is_nothing_to_ask(given: Any) -> None:
    assert selected(given).asked == ()
    assert group_findings(given) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "Missing findings: it is None"),
        ("None", "Missing findings: it is 'None'"),
        ({"manifest": "x"}, "findings contains dict .manifest.: use the result of an assess task"),
        ({"form": None}, "findings contains dict"),
        (7, "findings contains int: use"),
        ("/nowhere/findings.jsonl", r"The findings '/nowhere/findings.jsonl' do not exist"),
        ([{"form": "/nowhere/f.jsonl"}], "do not exist"),
    ],
)
def test_a_value_that_is_not_a_table_is_refused(given: Any, message: str) -> None:
    with pytest.raises(exc.ComplianceError, match=message) as caught:
        selected(given)
    assert not caught.value.transient


@pytest.mark.parametrize("line", ['{"category": "MISS', "[]", "\udce4".encode("utf-8", "surrogateescape")])
def test_a_damaged_line_is_named_so_that_no_finding_is_missed(tmp_path: Path, line: Any) -> None:
    uri = table(tmp_path, [row(1)])
    path = tmp_path / "findings.jsonl"
    path.write_bytes(path.read_bytes() + (line if isinstance(line, bytes) else line.encode()))
    for read in (lambda: group_findings(uri), lambda: selected(uri)):
        with pytest.raises(exc.ComplianceInputError, match=r"damaged: line 2 of 'file://.*findings.jsonl'"):
            read()


def test_empty_lines_and_an_empty_file_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert group_findings(f"file://{tmp_path}/empty.jsonl") == []
    (tmp_path / "f.jsonl").write_text("\n" + json.dumps(row(1)) + "\n\n" + json.dumps(row(2)))
    uri = f"file://{tmp_path}/f.jsonl"
    (form,) = group_findings(uri, only="all")
    assert asked(selected(form)) == [1, 2]


def test_a_response_id_belongs_to_its_assessment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    equal = row(1, cell="x", source="in/copy.pdf")  # an equal text: the same question
    other = row(1, cell="y", source="in/b.pdf")
    rows = [row(1, cell="x"), equal, other, row(1, cell="x", criterion="D-2"), row(None), {}]
    with caplog.at_level(logging.INFO):
        forms = group_findings(table(tmp_path, rows), only="all")
    assert ids(forms) == [[1], [1]]
    assert "1 with the response ID of another finding; 2 without a response ID" in caplog.text
    table(tmp_path, [row(1, BAD, cell="x"), other])
    again = group_findings(f"file://{tmp_path}/findings.jsonl", only="all")
    assert [form["outdated"] for form in again] == [["1-x"], [], []]
    assert [len(selected(form).asked) for form in again] == [0, 1, 1]


def test_a_damaged_form_is_refused(tmp_path: Path) -> None:
    (form,) = group_findings(table(tmp_path, [row(1)]), only="all")
    for content in ('{"id": 1', "[]", '{"title": "x"}', '{"id": 1, "x": 2}'):
        Path(form["form"].removeprefix("file://")).write_text(content)
        with pytest.raises(
            exc.ComplianceInputError, match=r"damaged: line 1 of 'file://|The form 'file://.*' is"
        ):
            selected(form)


def test_documents_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    uri = table(tmp_path, [row(1), row(2, source="in/b.pdf"), row(3, source="other/a.pdf")])
    assert [finding.document for finding in selected(uri).asked] == ["in/a.pdf", "b.pdf", "other/a.pdf"]
    secret = "https://ada:pa55@example.com/a.pdf"
    uri = table(tmp_path, [row(1), row(2, source=secret)])
    assert "pa55" not in selected(uri).asked[1].document


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "framework"}, "by must be 'document' or 'criterion'"),
        ({"only": "new"}, "only must be"),
        ({"max_findings": 0}, "max_findings must be at least 1"),
        ({"limit": 0}, "limit must be a whole number of at least 1, not 0"),
        ({"limit": "many"}, "limit must be"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(exc.ComplianceInputError, match=message):
        group_findings(table(tmp_path, [row(1)]), **options)


def test_more_forms_than_airflow_maps_are_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "31")
    uri = table(tmp_path, [row(number, source=f"in/{number}.pdf", criterion="D") for number in range(32)])
    with pytest.raises(exc.ComplianceInputError, match=r"more forms than the 31 .* Set a limit, or"):
        group_findings(uri, only="all")
    assert len(group_findings(uri, only="all", limit=31)) == 31
    assert len(group_findings(uri, only="all", by="criterion")) == 3


def test_work_grows_with_the_number_of_findings(tmp_path: Path) -> None:
    def group(count: int) -> None:
        forms = group_findings(tables[count], only="all")
        for form in forms:
            selected(form)
        assert sum(map(len, ids(forms))) == count

    sizes = (100, 400)
    rows = {size: (row(number, source=f"in/{number % 20}.pdf") for number in range(size)) for size in sizes}
    tables = {size: table(tmp_path, rows[size], f"{size}.jsonl") for size in sizes}
    assert growth(group, *sizes) < 6  # 16 where it is quadratic
