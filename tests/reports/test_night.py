from __future__ import annotations

import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from airflow_provider.reports.night import NightReport, relative_link
from airflow_provider.reports.outcomes import MAX_REPEATED
from airflow_provider.reports.verdicts import MAX_CHANGES, OPEN_CHANGES, REST, VerdictCounts
from tests.reports.pages import ATTACKS, VALUES, Strict, read_text

GOOD, BAD, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
NIGHT, LAST_NIGHT = "2026-03-02T01:00:00+00:00", "2026-03-01T01:00:00+00:00"
TOTALS = {"documents": 10, "completed": 9, "failed": 1, "categories": {GOOD: 20}}
TREND = [("2026-03-01", TOTALS)]


def document(number: int = 0, status: str = "COMPLETED", **changes: Any) -> dict[str, Any]:
    error = "It is damaged." if status == "FAILED" else None
    return {"source": f"s3://inbox/{number}.pdf", "status": status, "error": error, **changes}


def cell(number: int = 0, status: str = "COMPLETED", **changes: Any) -> dict[str, Any]:
    row = {"source": f"s3://inbox/{number}.pdf", "framework": "DORA", "status": status, "carried_from": None}
    return {**row, **changes}


def finding(number: int = 0, criterion: str = "D-1", category: str = GOOD, **changes: Any) -> dict[str, Any]:
    row = {"night": NIGHT, "source": f"s3://inbox/{number}.pdf", "framework": "DORA", "criterion": criterion}
    row |= {"title": "Exit", "category": category, "rationale": "why", "first_seen": LAST_NIGHT}
    return {**row, **changes}


def report(
    documents: Any = (), cells: Any = (), findings: Any = (), trend: Any = TREND, **changes: Any
) -> NightReport:
    made = NightReport("nightly", "scheduled__2026-03-02", NIGHT, 1, trend=trend)
    for row in documents:
        made.documents.add(row)
    for row in cells:
        made.verdicts.add_cell(row)
    for row in findings:
        made.verdicts.add_finding(row)
    outcomes = made.documents.outcomes
    made.totals = {
        "documents": outcomes.total(), "completed": outcomes["completed"], "failed": outcomes["failed"]
    }  # fmt: skip
    for name, value in changes.items():
        setattr(made, name, value)
    return made


class Page:
    """A parsed report."""

    def __init__(self, made: NightReport) -> None:
        self.html = made.render()
        self.links = Strict(self.html).links
        self.tree = LexborHTMLParser(self.html)

    def text(self, selector: str) -> str:
        return read_text(self.tree, selector)

    def texts(self, selector: str) -> list[str]:
        return [" ".join(node.text(separator=" ").split()) for node in self.tree.css(selector)]

    @property
    def titles(self) -> list[str]:
        return self.texts("h2")

    def section(self, title: str) -> str:
        [text] = [text for text in self.texts("section") if text.startswith(title)] or [""]
        return text


@pytest.mark.parametrize(
    ("made", "headline", "status", "tone"),
    [
        (report(), "There was nothing to do in this night.", "Nothing to do", "idle"),
        (report([document()]), "The only document completed.", "All completed", "good"),
        (
            report([document(), document(1, "FAILED"), document(2)]),
            "2 of 3 documents completed; 1 failed (33.3 %).",
            "Some failed",
            "warn",
        ),
        (report([], [cell()], [finding()]), "No verdict changed.", "Complete", "good"),
        (
            report([document()], [cell()], [finding()]),
            "No verdict changed. The only document completed.",
            "Complete",
            "good",
        ),
        (
            report([document()], [cell()], [finding(category=MISSING, changed_from=GOOD)]),
            "1 verdict changed: 1 worse, 0 better. The only document completed.",
            "1 got worse",
            "warn",
        ),
        (
            report([document()], [cell()], [finding(changed_from=MISSING)]),
            "1 verdict changed: 0 worse, 1 better. The only document completed.",
            "Complete",
            "good",
        ),
        (
            report([document()], [cell(), cell(1, "FAILED", error="Lost")], [finding()]),
            "No verdict changed. 1 assessment failed. The only document completed.",
            "1 not assessed",
            "warn",
        ),
        (
            report([document()], [cell(0, "FAILED", error="Lost")]),
            "1 assessment failed. The only document completed.",
            "Nothing assessed",
            "bad",
        ),
        (
            report([document()], missing=["ingest[3] (failed)"]),
            "1 task of this night left no manifest. The only document completed.",
            "Incomplete",
            "bad",
        ),
        (
            report(missing=["a (failed)", "b (failed)"]),
            "2 tasks of this night left no manifest.",
            "Incomplete",
            "bad",
        ),
        (
            report(vanished_total=3, compared_night=LAST_NIGHT),
            "3 documents of the night of 2026-03-01 vanished.",
            "No documents",
            "bad",
        ),
        (
            report([document()], vanished=["a"], vanished_total=1, compared_night=LAST_NIGHT),
            "1 document of the night of 2026-03-01 vanished. The only document completed.",
            "1 vanished",
            "warn",
        ),
        (
            report([document()], gone_frameworks=["DORA"]),
            "1 framework of the previous night without a verdict. The only document completed.",
            "1 framework gone",
            "warn",
        ),
        (
            report([document()], [cell()]),
            "The only document completed.",
            "1 without findings",
            "warn",
        ),
    ],
)
def test_the_headline_says_the_worst(made: NightReport, headline: str, status: str, tone: str) -> None:
    page = Page(made)

    assert page.text("h1").replace("\u00a0", " ") == headline
    assert page.text(".mark") == status
    assert page.tree.css(f"header.{tone}")


def test_a_first_night_has_nothing_to_compare_with() -> None:
    findings = [finding(first_seen=NIGHT), finding(0, "D-2", MISSING, first_seen=NIGHT)]
    page = Page(report([document()], [cell()], findings, trend=()))

    headline = page.text("h1").replace("\u00a0", " ")
    assert "The first night with verdicts: 1 missing, 0 not sufficiently regulated, of 2." in headline
    assert "There is nothing to compare with" in page.section("What changed")
    assert "Trend" not in page.titles
    assert "Previous night" not in page.text(".facts")


@pytest.mark.parametrize("first_seen", [NIGHT, None])
def test_first_verdicts_are_never_called_unchanged_even_if_there_were_nights_before(
    first_seen: str | None,
) -> None:
    page = Page(report([document()], [cell()], [finding(first_seen=first_seen)]))

    assert "No verdict changed" not in page.html
    assert "every verdict that there was" not in page.html


def test_new_verdicts_are_counted_apart_from_unchanged_ones() -> None:
    page = Page(report([], [cell()], [finding(), finding(1, first_seen=NIGHT)]))

    assert "1 verdict is new" in page.section("What changed")
    assert "Nothing: every verdict on a document that came in both nights is the same." in page.section(
        "What changed"
    )


def test_only_ingestion_shows_no_verdicts_and_only_assessment_no_documents() -> None:
    assert Page(report([document()])).titles == ["Documents", "Trend", "Evidence"]
    assert Page(report([], [cell()], [finding()])).titles == [
        *("What changed since the previous night", "DORA", "Trend", "Evidence"),
    ]
    assert Page(report(trend=())).titles == ["Evidence"]


def test_missing_tasks_come_first_with_what_to_do() -> None:
    page = Page(report([document()], missing=[f"ingest[{number}] (failed)" for number in range(60)]))

    assert page.titles[0] == "Missing"
    assert "Clear them" in page.section("Missing")
    assert "ingest[3] (failed)" in page.section("Missing")
    assert "and 10 more" in page.section("Missing")


def test_changes_show_the_worse_first_with_the_reason_behind_a_click() -> None:
    findings = [
        finding(1, changed_from=MISSING, rationale="Now in section 4"),
        finding(2, category=MISSING, changed_from=GOOD, rationale="Section 4 was removed"),
    ]
    page = Page(report([], [cell(1), cell(2)], findings))

    rows = page.texts(".changes tbody tr")
    assert rows[0].startswith("2.pdf s3://inbox/ D-1 DORA Exit sufficiently regulated missing Worse: why")
    assert rows[1].endswith("Better: why Now in section 4")
    assert page.texts(".changes details.why")[0] == "Worse: why Section 4 was removed"
    assert "1 worse, 1 better." in page.section("What changed")


def test_no_number_of_better_verdicts_hides_a_worse_one() -> None:
    findings = [finding(number, changed_from=MISSING) for number in range(3000)]
    findings.insert(2900, finding(9999, category=BAD, changed_from=GOOD))
    page = Page(report([], [], findings))

    assert page.texts(".changes tbody tr")[0].startswith("9999.pdf")
    assert len(page.texts(".changes tbody tr")) == MAX_CHANGES
    assert len(page.texts(".changes > table tbody tr")) == OPEN_CHANGES
    assert "1 worse, 3,000 better; the first 100" in page.section("What changed")


def test_a_change_that_nobody_can_rank_counts_as_worse() -> None:
    made = report(
        [], [], [finding(category="NEW", changed_from="ODD"), finding(1, category="NEW", changed_from=GOOD)]
    )

    assert (made.verdicts.worse, made.verdicts.better) == (2, 0)


def test_verdicts_are_counted_by_framework_and_criterion_as_experts_decided() -> None:
    findings = [
        finding(0, "D-1"),
        finding(0, "D-2", BAD),
        finding(1, "D-1", MISSING, expert="ann", expert_category=GOOD, expert_rationale="Annex 2"),
        finding(1, "D-2", MISSING),
    ]
    page = Page(report([], [cell(), cell(1, carried_from={"run": "r"})], findings, decisions=3))

    shown = page.section("DORA").replace("\u00a0", " ")
    assert "2 documents: 1 assessed tonight, 1 carried forward." in shown
    assert "Sufficiently regulated 2 50.0 % Not sufficiently regulated 1 25.0 % Missing 1 25.0 %" in shown
    assert shown.index("D-2") < shown.index("D-1")
    decisions = page.section("Decisions by experts")
    assert "3 made in this night. 1 of tonight's verdicts has been decided in nights before" in decisions
    assert "ann" in decisions
    assert "Annex 2" in decisions


def test_assessments_without_findings_are_counted_although_findings_come_later() -> None:
    made = report([], [cell(number) for number in range(5)], [finding(1), finding(1, "D-2"), finding(3)])

    assert made.verdicts.without_findings == 3
    assert "3 assessments completed without a single finding." in Page(made).html


def test_failures_are_grouped_and_those_of_assessments_are_apart() -> None:
    documents = [
        document(number, "FAILED", error=f"Fetching https://example.org/{number} gave HTTP 404.")
        for number in range(3)
    ]
    documents.append(document(4, "FAILED", error="Given up after 7 nights in a row, since 2026-02-20. Bad."))
    documents.append(
        document(5, "FAILED", error="Given up after 9 nights in a row, since 2026-02-18. Worse.")
    )
    lost = [cell(number, "FAILED", error=f"Assessment {number:032x} was lost.") for number in range(4)]
    page = Page(report(documents, lost))

    why = page.section("Why documents failed")
    assert re.search(r"3 .*Fetching … gave HTTP 404\. such as", why)
    assert re.search(r"2 .*Given up after too many nights in a row such as", why)
    assert re.search(r"4 .*Assessment … was lost\. such as", page.section("Why assessments failed"))


def test_documents_that_fail_every_night_are_listed_and_those_given_up_are_named() -> None:
    rows = [
        document(1, "FAILED", failed_nights=2, failed_since=LAST_NIGHT, error=None),
        document(2, "FAILED", failed_nights=1, failed_since=NIGHT),
        document(3, "FAILED", failed_nights=9, failed_since=LAST_NIGHT, error="Given up after 7 nights"),
        document(4, "FAILED"),
    ]
    page = Page(report(rows))

    section = page.section("Failed several nights in a row")
    assert "2 documents; 1 given up, which is not sent any more" in section
    assert page.texts(".repeated tbody tr") == [
        "3.pdf s3://inbox/ given up Given up after 7 nights 9 since 2026-03-01",
        "1.pdf s3://inbox/ (no reason given) 2 since 2026-03-01",
    ]


def test_the_lead_compares_the_number_of_documents() -> None:
    assert "7 documents fewer than in the previous night." in Page(report([document()] * 3)).text(".lead")
    assert "1 document more than in the previous night." in Page(report([document()] * 11)).text(".lead")
    assert "than in the previous night" not in Page(report([document()] * 10)).text(".lead")
    assert "than in the previous night" not in Page(report([document()], trend=())).text(".lead")


def test_the_trend_has_a_bar_for_each_night_and_the_numbers_below() -> None:
    trend = [(f"2026-02-{day:02}", TOTALS) for day in range(28, 0, -1)] + [("2026-01-31", TOTALS)] * 9
    page = Page(report([document(), document(1, "FAILED")], trend=trend))

    assert "The latest 30 nights" in page.section("Trend")
    assert "2026-03-02: 1 completed, 1 failed" in page.section("Trend")
    assert len(page.texts(".numbers tbody tr")) == 30
    assert page.texts(".numbers tbody tr")[0] == "2026-03-02 2 1 0 0 0 0 0"
    assert page.texts(".numbers tbody tr")[1] == "2026-02-28 10 1 20 0 0 0 0"


def test_the_evidence_says_how_to_verify_it() -> None:
    page = Page(report(root="s3://my_aws@bucket/all nights/", previous="ab" * 32, revision=2))

    assert page.text(".evidence pre") == "python -m airflow_provider verify 's3://bucket/all nights/'"
    assert "ab" * 32 in page.section("Evidence")
    assert "2, which replaces an earlier record" in page.text("header .facts")
    assert page.text(".evidence pre") not in Page(report()).html
    assert "verify ROOT" in Page(report()).html


def test_files_are_linked_so_that_the_links_work_wherever_the_store_is_served() -> None:
    folder = "s3://aws@texts/nights/dt=2026-03-02/_evidence"
    files = [
        ("ingest", f"{folder}/manifests/ab.jsonl"),
        ("report", "s3://aws@texts/nights/dt=2026-03-02/_ingest/d/r: 1?/report.html"),
        ("review", "gs://elsewhere/decisions.jsonl"),
    ]
    page = Page(report(files=files, folder=folder))

    assert page.links == ["../_ingest/d/r%3A%201%3F/report.html", "manifests/ab.jsonl"]
    assert "gs://elsewhere/ decisions.jsonl" in page.section("Evidence")
    assert Page(report(files=files)).links == []


@pytest.mark.parametrize(
    "name", ["javascript:alert(1)", "//evil.example/x", "\\\\evil", "?a#b", "\ud800", '"><x>']
)
def test_a_relative_link_leads_nowhere_else(name: str) -> None:
    link = relative_link(f"s3://b/n/{name}", "s3://b/n")

    assert re.fullmatch(r"[\w.%/-]+", link)
    assert not link.startswith("/")


def hostile(value: Any) -> NightReport:
    """Return a report with a value in every place."""
    names = [*finding(), "changed_from", "expert", "expert_category", "expert_rationale", "decided_at"]
    made = report(
        [
            dict.fromkeys([*document(), "failed_nights", "failed_since"], value),
            document(1, "FAILED", source=value, error=value, failed_nights=value, failed_since=value),
            document(2, "FAILED", source=value, error=value, failed_nights=3, failed_since=value),
        ],
        [dict.fromkeys(cell(), value), cell(source=value, framework=value)],
        [dict.fromkeys(names, value)],
        [(value, {**TOTALS, "categories": {str(value)[:99]: value}}), (value, value)],
        missing=[value],
        vanished=[value],
        vanished_total=2,
        compared_night=value,
        gone_frameworks=[value],
        warnings=[value],
        totals={"documents": value, "categories": value},
        files=[(str(value)[:99], str(value)[:999]), ("ingest", f"s3://b/{str(value)[:99]}")],
        folder="s3://b",
        root=str(value)[:999],
        previous=value,
        decisions=1,
    )
    made.dag_id = made.run_id = made.night = value
    return made


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_stays_text(attack: str) -> None:
    page = Page(hostile(attack))

    allowed = re.compile(r"https?://[^@]+|[\w.%/-]+")
    assert all(allowed.fullmatch(link) for link in page.links), page.links
    assert "secret" not in page.html
    assert not re.search("[\u202e\x00\x1b]", page.html)
    assert len(page.tree.css("h1")) == len(page.tree.css("style")) == 1


@settings(max_examples=25, deadline=None)
@given(VALUES)
def test_any_value_in_any_place_gives_a_well_formed_page(value: Any) -> None:
    html = hostile(value).render()

    assert html.encode()
    Strict(html)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(sorted({*document(), *cell(), *finding()})), VALUES), max_size=8)
)
def test_rows_of_any_content_are_counted(rows: list[dict[str, Any]]) -> None:
    made = report(rows, rows, rows)
    Strict(made.render())
    assert made.documents.total == len(rows)


def test_the_largest_page_is_below_two_megabytes() -> None:
    def url(number: int) -> str:
        return f"https://a/{number}/{'&' * 1900}"

    made = report(
        [document(n, "FAILED", source=url(n), error=f"&{n}-" * 999, failed_nights=9) for n in range(2000)],
        [cell(number, "FAILED", source=url(number), error=f"&{number}-" * 999) for number in range(2000)],
        [
            finding(
                source=url(number),
                framework=f"{number % 100}{'&' * 999}",
                criterion=f"{number}{'&' * 999}",
                title="&" * 999,
                category=f"&{number}" * 99,
                changed_from="&" * 999,
                rationale="&" * 9999,
                expert="&" * 999,
                expert_category="&" * 999,
                expert_rationale="&" * 9999,
            )
            for number in range(2000)
        ],
        [("&" * 99, {"documents": 2**62, "failed": 7, "categories": {"&" * 99: 5}, "missing": 1})] * 99,
        missing=["&" * 999] * 999,
        vanished=[url(number) for number in range(200)],
        vanished_total=9999,
        gone_frameworks=["&" * 999] * 999,
        warnings=["&" * 999] * 999,
        files=[(kind, f"s3://b/{'&' * 300}") for kind in ("ingest", "findings") for _ in range(2000)],
        root="s3://" + "&" * 9999,
        previous="&" * 9999,
        folder="s3://b/x",
    )
    made.dag_id = made.run_id = made.night = "&" * 9999
    page = Page(made)

    assert len(page.html.encode()) < 2_000_000
    assert len(page.texts(".repeated tbody tr")) == MAX_REPEATED


def feed(made: NightReport, numbers: range) -> None:
    for number in numbers:
        status = "FAILED" if number % 2 == 0 else "COMPLETED"
        made.documents.add(
            document(number, status, error=f"Reason {number} of many", source=f"s3://{number}")
        )
        for framework in ("DORA", "GDPR"):
            made.verdicts.add_cell(cell(number, status, framework=framework, error=f"Reason {number}"))
            for criterion in range(2):
                made.verdicts.add_finding(
                    finding(number, f"C-{criterion}", framework=framework, changed_from=BAD, expert="ann")
                )


def test_memory_does_not_grow_with_documents() -> None:
    tracemalloc.start(2)
    ours = tracemalloc.Filter(True, "*/airflow_provider/reports/*", all_frames=True)

    def allocated() -> int:
        snapshot = tracemalloc.take_snapshot().filter_traces([ours])
        return sum(each.size for each in snapshot.statistics("filename"))

    try:
        made = report()
        feed(made, range(1_200))
        half = allocated()
        feed(made, range(1_200, 2_400))
        whole = allocated()
    finally:
        tracemalloc.stop()
    assert half > 0
    assert whole - half < 20_000
    assert made.verdicts.changed == 2_400 * 4


def test_criteria_with_a_name_of_their_own_in_each_document_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VerdictCounts, "max_criteria", 50)
    made = report(
        [], [], [finding(number, f"#{number}", framework=f"F{number % 60}") for number in range(500)]
    )

    assert len(made.verdicts.by_criterion) <= 2 * 50 + 1
    assert made.verdicts.total == 500
    assert made.verdicts.criteria[REST]


def test_a_night_of_ordinary_documents_is_a_small_page() -> None:
    made = report()
    feed(made, range(2000))

    assert len(made.render()) < 300_000
