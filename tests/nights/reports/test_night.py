"""The report of a night: its headline, its sections, and what it does with hostile or very many rows."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.nights import severity
from airflow_provider.nights.reports import verdicts
from airflow_provider.nights.reports.outcomes import MAX_NAMED, MAX_REPEATED
from airflow_provider.nights.reports.verdicts import MAX_CHANGES, MAX_MADE_DECISIONS, REST
from tests.nights.reports.pages import (
    ATTACKS,
    BAD,
    GOOD,
    LAST_NIGHT,
    MISSING,
    NIGHT,
    TOTALS,
    VALUES,
    Night,
    Page,
    Strict,
    cell,
    document,
    finding,
    measure_growth,
)


def page(*rows: Any, **record: Any) -> Page:
    return Page(Night(*rows, **record).render())


ONE = "Of 1 document, 1 is new or changed."
GONE = "3 documents of the night of 2026-03-01 are"
VANISHED = {"totals": {"vanished": 3}}
WORSE, BETTER = finding(category=MISSING, changed_from=GOOD), finding(changed_from=MISSING)


@pytest.mark.parametrize(
    ("night", "headline", "status", "tone"),
    [
        (Night(), "There was nothing to do tonight.", "Nothing to do", "idle"),
        (Night([document()]), ONE, "No failures", "good"),
        (
            Night([document(), document(1, "FAILED"), document(2)]),
            "Of 3 documents, 2 are new or changed and 1 failed.",
            "Some failed",
            "warn",
        ),
        (Night([], [cell()], [finding()]), "No verdict changed.", "Complete", "good"),
        (Night([document()], [cell()], [finding()]), f"No verdict changed. {ONE}", "Complete", "good"),
        (Night([], [cell()], [WORSE]), "1 verdict got worse.", "1 got worse", "warn"),
        (Night([], [cell()], [BETTER]), "1 verdict got better.", "Complete", "good"),
        (
            Night([], [cell(), cell(1, "FAILED")], [finding()]),
            "No verdict changed. 1 assessment failed.",
            "1 not assessed",
            "warn",
        ),
        (Night([], [cell(0, "FAILED")]), "1 assessment failed.", "Nothing assessed", "bad"),
        (Night([document()], [cell(findings=0)]), ONE, "1 without findings", "warn"),
        (
            Night([document()], missing=["a (failed)"]),
            f"1 task left no manifest: a (failed). {ONE}",
            "Incomplete",
            "bad",
        ),
        (
            Night(missing=["a (failed)", "b (upstream_failed)"]),
            "2 tasks left no manifest: a (failed) and 1 more.",
            "Incomplete",
            "bad",
        ),
        (
            Night(missing=["a (failed)"], **VANISHED),
            f"1 task left no manifest: a (failed). {GONE} not among tonight's.",
            "Incomplete",
            "bad",
        ),
        (
            Night(**VANISHED),
            f"{GONE} no longer there.",
            "No documents",
            "bad",
        ),
        (
            Night([document()], **VANISHED),
            f"{GONE} no longer there. {ONE}",
            "3 removed",
            "warn",
        ),
        (
            Night([document()], gone_frameworks=["DORA"]),
            f"1 framework had verdicts the night before, but none tonight. {ONE}",
            "1 framework gone",
            "warn",
        ),
        (Night([document()], warnings=["Less."]), ONE, "With warnings", "warn"),
        (
            Night([document()], failed_tasks=["a", "b"]),
            f"2 tasks failed: a and 1 more. {ONE}",
            "Tasks failed",
            "bad",
        ),
    ],
)
def test_the_headline_says_the_worst(night: Night, headline: str, status: str, tone: str) -> None:
    assert Page(night.render()).headline == (headline, status, tone)


def test_a_first_night_has_nothing_to_compare_with() -> None:
    findings = [finding(first_seen=NIGHT), finding(0, "D-2", MISSING, first_seen=None)]
    bad = ", ".join(f"{int(one.name == MISSING)} {one.words}" for one in reversed(severity.BAD))
    for trend in ((), [("2026-03-01", TOTALS)]):  # also if there were nights before
        shown = page([document()], [cell()], findings, trend)
        assert f"first night with verdicts: {bad}, of 2 verdicts." in shown.text("h1")
        assert "Nothing to compare with" in shown.section("What changed")
    earlier = page([document()], [cell()], findings, [("2026-03-02T01:30:00+00:00", TOTALS)])
    assert "Previous night 2 Mar 2026, 01:30 UTC" in earlier.text(".facts")  # there may be two on a day
    shown = page([document()], [cell()], findings, ())
    assert "Trend" not in shown.texts("h2")
    assert "Previous night" not in shown.text(".facts")


def test_new_verdicts_are_counted_apart_from_unchanged_ones() -> None:
    section = page([], [cell()], [finding(), finding(1, first_seen=NIGHT)]).section("What changed")
    assert "1 verdict is new" in section
    assert "No verdict changed on documents present in both nights." in section


@pytest.mark.parametrize(
    ("rows", "titles"),
    [
        (([document()],), ["Documents", "Trend", "Evidence"]),
        (
            ([], [cell()], [finding()]),
            ["What changed since the night before", "DORA", "Trend", "Evidence"],
        ),
        (([], [], [], ()), ["Evidence"]),
    ],
)
def test_a_page_has_sections_for_what_there_is(rows: tuple[Any, ...], titles: list[str]) -> None:
    assert page(*rows).texts("h2") == titles


def test_missing_tasks_and_documents_come_first() -> None:
    shown = page(
        [document()],
        missing=["find (failed)", *(f"ingest[{number}] (upstream_failed)" for number in range(59))],
        vanished=["s3://inbox/gone.pdf"],
        gone_frameworks=["NIS2"],
        warnings=["No answer to C-7."],
        **VANISHED,
    )
    assert shown.texts("h2")[:4] == [
        "Missing", "Documents that are gone", "Frameworks without a verdict", "Warnings"
    ]  # fmt: skip
    assert "find (failed): see its log, then clear it" in shown.section("Missing")
    reason = "did not run, because a task above it failed"
    assert f"ingest[48] (upstream_failed): {reason} and 10 more" in shown.section("Missing")
    assert "perhaps because of the tasks that are missing. The first 1" in shown.section(
        "Documents that are gone"
    )
    assert "gone.pdf" in shown.section("Documents that are gone")


def test_changes_show_the_worse_first_with_the_reason_behind_a_click() -> None:
    findings = [
        finding(number, f"D-{number % 120}", changed_from=MISSING, rationale="Section 4")
        for number in range(3000)
    ]
    worse = finding(9999, category=BAD, changed_from=GOOD, rationale="Removed")
    findings.insert(2900, worse)
    shown = page([], [cell()], findings)
    rows = shown.texts(".changes tbody tr")
    assert rows[0] == (
        "9999.pdf s3://inbox/ D-1 DORA Exit sufficiently regulated not sufficiently regulated "
        "Why it is worse Removed"
    )
    assert rows[1].endswith("Why it is better For example, 0.pdf: Section 4")
    assert (len(rows), len(shown.texts(".changes > table tbody tr"))) == (MAX_CHANGES, 10)
    assert shown.text(".changes .more > summary") == "90 more"
    assert "3,001 verdicts changed: 3,001 open. The full list is in findings.jsonl.gz" in shown.section(
        "What changed"
    )
    assert rows[1].count(".pdf") == MAX_NAMED + 1
    assert "and 24 more documents" in rows[1]
    assert "and 5 more (see findings.jsonl.gz)" in rows[1]


def test_verdicts_are_counted_by_framework_and_criterion_as_experts_decided() -> None:
    findings = [
        finding(0, "D-1"),
        finding(0, "D-2", BAD),
        finding(1, "D-1", MISSING, expert="ann", expert_category=GOOD, expert_rationale="Annex 2"),
        finding(1, "D-2", MISSING),
    ]
    cells = [cell(), cell(1, carried_from={"run": "r"})]
    shown = Page(Night([], cells, findings, decisions=[decide("changed", expert_id="eve")]).render())
    section = shown.section("DORA")
    assert "Documents: 1 assessed tonight, 1 carried over." in section
    assert "No assessment ran tonight" in Page(Night([], cells[1:], findings).render()).text(".lead")
    assert "Sufficiently regulated 2 50.0 % Not sufficiently regulated 1 25.0 % Missing 1 25.0 %" in section
    assert section.index("D-2") < section.index("D-1")
    decisions = shown.section("Expert decisions")
    assert (
        "1 of 1 finding decided: 1 overruled. Experts decided 1 of these verdicts on earlier nights."
        in decisions
    )
    assert "D-1 DORA missing sufficiently regulated Overruled by ann" in decisions
    assert "Annex 2" in decisions
    made = "7.pdf s3://inbox/ D-9 DORA not sufficiently regulated sufficiently regulated"
    assert f"{made} Overruled by eve , 2 Mar 2026, 09:00 UTC Annex 4" in decisions


def decide(decision: str, **changes: Any) -> dict[str, Any]:
    """Return a row of a table of decisions."""
    row = {"source": "s3://inbox/7.pdf", "framework": "DORA", "criterion": "D-9", "category_before": BAD}
    more = {"category_after": GOOD, "decided_at": "2026-03-02T09:00:00", "rational_feedback": "Annex 4"}
    return {**row, **more, "decision": decision, **changes}


def test_finding_that_no_expert_decided_is_counted_and_has_no_category_of_an_expert() -> None:
    changed = {"category": BAD, "changed_from": GOOD}
    findings = [
        finding(7, "D-9", **changed),
        finding(8, "D-9", **changed, cell="same text"),
        finding(9, "D-9", **changed, expert="ann"),
        finding(10, "D-9", **changed),
    ]
    decisions = [decide("expired"), decide("none", cell="same text", answered_by="eve"), decide("changed")]
    shown = Page(Night([], [cell()], findings, decisions=decisions).render()).section("Expert decisions")
    counted = "1 of 3 findings decided: 1 overruled. 2 are still open. No form asks about 1 open verdict."
    assert counted in shown
    assert shown.count("regulated Open") == 2
    assert shown.count("2 Mar 2026") == 1  # of the decision: no one has decided about the others


def test_report_says_what_stands_who_said_so_and_what_is_open() -> None:
    changed = {"category": BAD, "changed_from": GOOD}
    findings = [
        *(finding(number, "D-9", **changed) for number in range(4)),
        finding(4, "D-9", **changed, expert="ann", expert_category=MISSING),
        finding(5, "D-8", BAD, open_from=GOOD),
        finding(6, "D-8", BAD, expert="ann", expert_category=GOOD),
    ]
    decisions = [
        decide("changed", source="s3://inbox/0.pdf", expert_id="eve", outcome="recorded"),
        decide("agreed", source="s3://inbox/1.pdf", category_after=BAD, rational_feedback=""),
        decide("commented", source="s3://inbox/2.pdf", category_after=BAD),
        decide("none", source="s3://inbox/3.pdf"),
    ]
    night = Night([], [cell()], findings, decisions=decisions)
    shown = Page(night.render())
    assert shown.headline[0] == "4 verdicts got worse. Experts overruled 3 verdicts."
    assert shown.headline[1] == "4 got worse"
    section = shown.section("What changed")
    assert "5 verdicts changed: 2 overruled, 1 open, 1 commented, 1 confirmed." in section
    assert "1 verdict that changed on earlier nights is still open" in section
    rows = shown.texts(".changes tbody tr")
    assert "→ missing Overruled by ann" in rows[0]
    assert (
        "→ sufficiently regulated Overruled by eve , 2 Mar 2026, 09:00 UTC (not sent) Annex 4 Why" in rows[1]
    )
    assert "0.pdf" in rows[1]
    assert "3.pdf" in rows[2]
    assert "3 of 4 findings decided: 1 confirmed, 1 commented, 1 overruled. 1 is still open." in shown.text(
        "header .facts"
    )
    assert "Overruled by eve , 2 Mar 2026, 09:00 UTC (not sent)" in shown.section("Expert decisions")
    assert (night.verdicts.open, night.verdicts.overruled) == (2, 3)
    assert night.verdicts.categories == {GOOD: 2, MISSING: 1, BAD: 4}


def test_report_of_a_night_that_no_one_was_asked_about_yet_says_so_on_its_first_screen() -> None:
    shown = page([], [cell()], [finding(changed_from=BAD), finding(1, "D-8", BAD, open_from=GOOD)])
    assert "2 changed verdicts wait for an expert." in shown.text("header .facts")
    assert "Experts" not in page([], [cell()], [finding()]).text("header .facts")


@pytest.mark.parametrize(
    ("category_after", "headline"),
    [
        (GOOD, "No changed verdict stands. Experts overruled 1 verdict."),
        (MISSING, "1 verdict got worse. Experts overruled 1 verdict."),
    ],
)
def test_headline_and_badge_count_what_stands(category_after: str, headline: str) -> None:
    row = finding(7, "D-9", BAD, changed_from=GOOD)
    night = Night([], [cell()], [row], decisions=[decide("changed", category_after=category_after)])
    shown = Page(night.render())
    assert shown.headline[0] == headline
    assert (shown.headline[1] == "1 got worse") is (category_after != GOOD)


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [(-0.57, "document", "new text, 57 % shorter"), (14.254, "document", "new text, 1,425 % longer"),
     (0.2, "both", "new text, 20 % longer; new version of the framework"),
     (-1.0, "document", "100 % shorter"),
     (None, "document", "new text"), ("x", "document", "new text"), (-0.5, "judge", "differently")],
)  # fmt: skip
def test_change_of_a_text_says_by_how_much(change: Any, reason: str, said: str) -> None:
    row = finding(7, "D-9", BAD, changed_from=GOOD, change_reason=reason, text_change=change)
    (shown,) = page([], [cell()], [row]).texts(".changes tbody tr")
    assert said in shown
    assert ("%" in shown) is ("%" in said)


def test_no_verdict_changed_is_not_said_where_experts_overruled_the_service() -> None:
    row = finding(7, "D-9", BAD, expert="ann", expert_category=GOOD)
    assert page([], [cell()], [row]).headline[0] == (
        "No verdict of the service changed. Experts overruled 1 verdict."
    )


def test_decision_about_an_earlier_verdict_is_not_applied() -> None:
    row = finding(7, "D-9", MISSING, changed_from=GOOD)  # the form showed BAD
    shown = page([], [cell()], [row], decisions=[decide("changed")])
    assert "Experts overruled" not in shown.headline[0]


def test_completed_assessments_without_findings_are_counted() -> None:
    failed, carried = cell(4, "FAILED", findings=0), cell(3, findings=0, carried_from={"run": "r"})
    night = Night([], [cell(1), cell(2, findings=0), carried, failed])
    assert "2 assessments completed without a single finding." in Page(night.render()).text("main")


def test_failures_are_grouped_and_those_of_assessments_are_apart() -> None:
    fetching = [f"Fetching https://example.org/{number} gave HTTP 404." for number in range(3)]
    given_up = [f"Given up after {number} nights in a row, since 2026-02-20. Bad." for number in (7, 9)]
    documents = [document(error=error, status="FAILED", failure_kind="gone") for error in fetching]
    documents += [document(error=error, status="FAILED", failure_kind="given_up") for error in given_up]
    lost = [cell(number, "FAILED", error=f"Assessment {number:032x} was lost.") for number in range(4)]
    shown = page(documents, [*lost, cell(9, "FAILED")])
    why = shown.section("Why documents failed")
    assert re.search(r"3 .*gone ?Fetching … gave HTTP 404\. ", why)
    assert re.search(r"2 .*given up ?Given up after too many nights in a row s3", why)
    assert "Check 5 documents that failed (3 gone, 2 given up)." in shown.texts("dd")[1]
    assert re.search(r"4 .*Assessment … was lost\. such as .*no reason", shown.section("Why assessments"))


def test_findings_that_experts_left_undecided_do_not_displace_decisions() -> None:
    decisions = [decide("none") for _ in range(MAX_MADE_DECISIONS + 1)] + [decide("changed", expert_id="eve")]
    shown = Page(Night([], [cell()], [finding()], decisions=decisions).render()).section("Expert decisions")
    assert shown.index("Overruled by eve") < shown.index(" Open")
    assert "and 2 more (see the tables of decisions)" in shown


def test_each_reason_names_the_documents_that_failed_for_it() -> None:
    few = [document(number, "FAILED", error="Truncated.") for number in range(3)]
    many = [document(number, "FAILED", error="Encrypted.") for number in range(10, 35)]
    cells = [cell(1, "FAILED", framework=framework) for framework in ("DORA", "GDPR")]
    all_named = [document(number, "FAILED", error="Empty.") for number in range(40, 40 + MAX_NAMED)]
    shown = page([*few, *many, *all_named], cells)
    encrypted, empty, truncated = shown.texts(".reasons tbody tr")[:3]
    assert (empty.count(".pdf"), "in the tables" in empty) == (MAX_NAMED, False)
    numbers = [[int(number) for number in re.findall(r"(\d+)\.pdf", row)] for row in (truncated, encrypted)]
    assert numbers == [[0, 1, 2], list(range(10, 30))]
    assert "and 2 more documents" in truncated
    assert "in the tables" not in truncated
    assert "and more (see the command failures)" in encrypted
    assert shown.section("Why assessments").count("1.pdf") == 1


def test_documents_that_fail_every_night_are_listed_and_those_given_up_are_named() -> None:
    rows = [
        document(1, "FAILED", failed_nights=2, failed_since=LAST_NIGHT, error=None),
        document(2, "FAILED", failed_nights=1, failed_since=NIGHT),
        document(
            3, "FAILED", failed_nights=9, failed_since=LAST_NIGHT, failure_kind="given_up", error="Bad."
        ),
        document(4, "FAILED"),
    ]
    shown = page(rows)
    section = shown.section("Failed several nights in a row")
    assert "2 documents; 1 given up: no longer sent" in section
    assert shown.texts(".repeated tbody tr") == [
        "3.pdf s3://inbox/ given up Bad. 9 since 2026-03-01",
        "1.pdf s3://inbox/ (no reason given) 2 since 2026-03-01",
    ]


@pytest.mark.parametrize(
    ("number", "said"), [(3, "7 fewer documents than"), (11, "1 more document than"), (10, "")]
)
def test_the_lead_compares_the_number_of_documents(number: int, said: str) -> None:
    lead = page([document()] * number).text(".lead")
    assert said in lead
    assert ("than the night before" in lead) is bool(said)


def test_the_trend_has_a_bar_for_each_night_and_the_numbers_below() -> None:
    trend = [(f"2026-02-{day:02}", TOTALS) for day in range(28, 0, -1)] + [("2026-01-31", TOTALS)] * 9
    shown = page([document(), document(1, "FAILED")], trend=trend)
    assert "The latest 30 nights" in shown.section("Trend")
    assert "2026-03-02: 1 new or changed, 1 failed" in shown.section("Trend")
    rows = shown.texts(".numbers tbody tr")
    assert (len(rows), rows[0], rows[1]) == (30, "2026-03-02 2 1 0 0 0 0 0", "2026-02-28 10 1 20 0 0 0 0")


def test_each_number_and_each_side_of_a_change_has_a_label_for_narrow_screens() -> None:
    rules = [("DORA", "D-1", "description", "old", "new")]
    shown = page([document(1, "FAILED", failed_nights=2)], [cell()], [WORSE], rules=rules)
    for table in shown.tree.css("table.rows"):
        head = [node.text() for node in table.css("th")]
        labels = [node.attributes.get("data-label") for node in table.css("tr:has(td)")[0].css("td")]
        assert all(label in (None, title) for label, title in zip(labels, head, strict=True))
        assert {"Before", "Now", "Nights", "Documents"} & {*head} <= {*labels}
    assert len(shown.tree.css("table.rows")) == 4


def test_the_evidence_says_how_to_verify_it_and_names_the_tables() -> None:
    manifests = [{"kind": "ingest", "path": f"dt=1/{'a b' * 50}/{number}.jsonl"} for number in range(102)]
    record = {"root": "s3://my_aws@bucket/all nights", "previous": {"sha256": "ab" * 32}, "revision": 2}
    record["replaces"] = {"number": 7, "sha256": "cd" * 32}
    shown = page(manifests=manifests, **record)
    assert shown.text(".evidence pre") == "python -m airflow_provider verify 's3://my_aws@bucket/all nights'"
    assert "ab" * 32 in shown.section("Evidence")
    assert "2 (replaces record 7)" in shown.text("header .facts")
    assert "Manifests of ingestion (102)" in shown.section("Evidence")
    assert shown.section("Evidence").count(".jsonl") == 100
    assert shown.links == []  # a table is not a page
    assert "and 2 more, in the record" in shown.section("Evidence")


def hostile(value: Any) -> Night:
    """Return a night with a value in every place that another system can fill."""
    names = [*finding(), "changed_from", "expert", "expert_category", "expert_rationale", "decided_at"]
    return Night(
        [
            dict.fromkeys([*document(), "failed_nights", "failed_since"], value),
            document(1, "FAILED", source=value, error=value, failed_nights=value, failed_since=value),
            document(2, "FAILED", source=value, error=value, failed_nights=3, failed_since=value),
        ],
        [dict.fromkeys(cell(), value), cell(source=value, framework=value)],
        [dict.fromkeys(names, value)],
        [(value, {**TOTALS, "categories": {str(value)[:99]: value}}), (value, value)],
        vanished=[value],
        **{name: [value] for name in ("missing", "failed_tasks", "gone_frameworks", "warnings")},
        **dict.fromkeys(("dag_id", "run_id", "night"), value),
        totals={"documents": value, "categories": value, "vanished": 2, "decisions": 1},
        compared_with={"night": value},
        root=f"s3://b/{str(value)[:99]}",
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_stays_text(attack: str) -> None:
    shown = Page(hostile(attack).render())
    assert all(re.fullmatch(r"https?://[^@]+|[?]source=[\w.~%-]+|#[\w-]+", link) for link in shown.links), (
        shown.links
    )
    assert "secret" not in shown.html
    assert not re.search("[\u202e\x00\x1b]", shown.html)
    assert len(shown.tree.css("h1")) == len(shown.tree.css("style")) == 1


@settings(max_examples=25, deadline=None)
@given(
    VALUES,
    st.lists(
        st.dictionaries(st.sampled_from(sorted({*document(), *cell(), *finding()})), VALUES), max_size=8
    ),
)
def test_any_value_in_any_place_gives_a_well_formed_page(value: Any, rows: list[dict[str, Any]]) -> None:
    for night in (hostile(value), Night(rows, rows, rows)):
        html = night.render()
        assert html.encode()
        Strict(html)
    assert night.documents.total == len(rows)


def test_the_largest_page_is_below_two_megabytes() -> None:
    def url(number: int) -> str:
        return f"https://a/{number}/{'&' * 1900}"

    long = dict.fromkeys(("title", "changed_from", "rationale", "expert", "expert_rationale"), "&" * 9999)
    night = Night(
        [document(n, "FAILED", source=url(n), error=f"&{n}-" * 999, failed_nights=9) for n in range(2000)],
        [cell(number, "FAILED", source=url(number), error=f"&{number}-" * 999) for number in range(2000)],
        [
            finding(
                n,
                f"{n}{'&' * 999}",
                f"&{n}" * 99,
                **{
                    **long,
                    "source": url(n),
                    "framework": f"{n % 100}{'&' * 999}",
                    "expert_rationale": "&" * 9999,
                },
            )
            for n in range(2000)
        ],
        [("&" * 99, {"documents": 2**62, "failed": 7, "categories": {"&" * 99: 5}, "missing": 1})] * 99,
        vanished=[url(number) for number in range(50)],
        totals={"vanished": 9999},
        manifests=[{"kind": k, "path": "&" * 300, "sha256": "0"} for k in ("ingest", "findings")] * 2000,
        **{name: ["&" * 999] * 999 for name in ("missing", "gone_frameworks", "warnings")},
        **dict.fromkeys(("dag_id", "run_id", "night"), "&" * 9999),
        root="s3://" + "&" * 9999,
    )
    shown = Page(night.render())
    assert len(shown.html.encode()) < 2_000_000
    assert len(shown.texts(".repeated tbody tr")) == MAX_REPEATED


def feed(night: Night, numbers: range) -> None:
    for number in numbers:
        status = "FAILED" if number % 2 == 0 else "COMPLETED"
        night.documents.add(document(number, status, error=f"Reason {number} of many"))
        for framework in ("DORA", "GDPR"):
            night.verdicts.add_cell(cell(number, status, framework=framework, error=f"Reason {number}"))
            for criterion in ("C-0", "C-1"):
                row = finding(number, criterion, framework=framework, changed_from=BAD, expert="ann")
                night.verdicts.add_finding(row)


def test_memory_does_not_grow_with_documents_and_the_page_is_small() -> None:
    night = Night()
    assert measure_growth(lambda numbers: feed(night, numbers), 2_400) < 20_000
    assert night.verdicts.changed == 2_400 * 4
    assert len(night.render()) < 300_000


def test_criteria_with_a_name_of_their_own_in_each_document_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verdicts, "MAX_CRITERIA", 50)
    rows = [finding(n, f"#{n}", framework=f"F{n % 60}", changed_from=BAD) for n in range(500)]
    counts = Night([], [], rows).verdicts
    assert sum(len(framework.criteria) for framework in counts.frameworks.values()) <= 2 * 50 + 1
    assert (counts.total, counts.changed, len(counts.changes)) == (500, 500, 50)
    assert counts.frameworks[REST].criteria[REST].title == ""
