"""What an expert reads and fills in, and what the answers mean; the service's text is escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.client.models import FeedbackCategory, Framework
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.review.form import JOINER, Form, escape, format_category, list_demands, to_line
from airflow_provider.nights.review.selection import ReviewedFinding

GOOD, BAD, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
EXIT = ReviewedFinding(
    7, "Exit", MISSING, "Nothing was\nfound.", 0.25, "E-1", "contract.pdf", "DORA",
    source="s3://in/contract.pdf", text_path="s3://my_aws@out/contract.txt",
    night="2026-11-17T01:00:00+00:00", cell="c1", changed_from=GOOD, change_reason="framework",
    findings="s3://out/findings.jsonl",
)  # fmt: skip
COMMON = ("document", "framework", "source", "text_path")
AUDIT = ReviewedFinding(8, "", BAD, document="b.pdf", framework="GDPR", source="https://example.com/b.pdf")
SHOWN = """\
From the *author*.

**2 documents**

### 2 findings to review: 1 worse\\, 1 not sufficiently regulated

- To give feedback on a finding, write a **rationale** below, and correct the **category** where it is wrong.
- The service takes no feedback without a rationale. A corrected category without one is recorded, not sent.
- To confirm all findings you don't change, turn on "I agree with the rest". This is recorded here, not sent
  to the service. Without it, what you don't change is not decided: it stays open.
- **Send feedback** records your decisions and sends your rationales to the service. **Decide later** records
  what you typed and sends nothing.

*Findings that are not on the form: 2 without a response ID; 1 beyond the limit.*

---

#### 1\\. Exit (E\\-1)

**Missing** · score 0.25 · contract\\.pdf · DORA · before: sufficiently regulated \
· reason for the change: new version of the framework · Text: s3\\:\\/\\/out\\/contract\\.txt \
· Source: s3\\:\\/\\/in\\/contract\\.pdf

Requirement: An exit plan\\.

> Nothing was found\\.

#### 2\\. Response 8

**Not sufficiently regulated** · b\\.pdf · GDPR · [Source](<https://example.com/b.pdf>)

> *The service gave no rationale.*"""


def test_the_form_shows_category_cause_demand_rationale_and_links() -> None:
    form = Form([EXIT, AUDIT], "results")
    demands = {("DORA", "E-1"): "An exit plan.", ("DORA", "E-2"): "Else."}
    omitted = "2 without a response ID; 1 beyond the limit"
    assert form.render(" From the *author*.\n", omitted, demands) == SHOWN


def test_a_form_about_one_document_names_it_and_links_to_it_once() -> None:
    body = Form([EXIT, replace(AUDIT, **{name: getattr(EXIT, name) for name in COMMON})]).render()
    about, counted, *_ = body.split("\n\n")
    assert about == (
        r"**contract\.pdf · DORA** · Text: s3\:\/\/out\/contract\.txt · Source: s3\:\/\/in\/contract\.pdf"
    )
    assert counted == r"### 2 findings to review: 1 worse\, 1 not sufficiently regulated"
    assert [body.count(name) for name in ("DORA", "Source", "Requirement", "not on the form")] == [1, 1, 0, 0]
    assert Form([ReviewedFinding(1)]).render().startswith("### 1 finding to review: 1 no category\n")


def test_form_links_to_the_pages_of_documents_and_of_the_night() -> None:
    hostile = replace(AUDIT, source="s3://in/a b>)[x](javascript:1)?&.pdf")
    about, *_, last = Form([EXIT, hostile]).render(page="/compliance/runs/d/r").split("\n\n####")
    assert "[Report](</compliance/runs/d/r>)" in about
    link = "[All nights](</compliance/runs/d/r?source="
    assert link not in about
    assert f"{link}s3%3A%2F%2Fin%2Fa%20b%3E%29%5Bx%5D%28javascript%3A1%29%3F%26.pdf>)" in last
    assert f"{link}s3%3A%2F%2Fin%2Fcontract.pdf>)" in Form([EXIT]).render(page="/compliance/runs/d/r")


def test_what_criteria_demand_is_found_by_code_and_by_name() -> None:
    criteria = [{"codeName": "E-1", "name": "Exit", "description": "A plan."}, {"name": "Audit"}]
    listed = [Framework.model_validate({"codeName": "DORA", "criteria": criteria})]
    demands = list_demands(listed)
    assert (demands["DORA", "E-1"], demands["DORA", "Exit"], demands["DORA", "Audit"]) == ("A plan.",) * 2 + (
        "",
    )


def test_each_finding_has_its_category_and_an_empty_rationale() -> None:
    fields = Form([EXIT, AUDIT]).fields
    assert list(fields) == ["agree_with_the_rest", "category_7", "rationale_7", "category_8", "rationale_8"]
    assert fields["agree_with_the_rest"] == {
        "default": False,
        "title": "I agree with the rest",
        "description": "Confirms every finding that you don't change.",
        "type": ["boolean", "null"],
    }
    assert fields["category_7"] == {
        "default": MISSING,
        "title": "1. contract.pdf: Exit",
        "description": "Nothing was found.",
        "type": ["string", "null"],
        "enum": [*FeedbackCategory, None],
        "values_display": {
            **{str(category): format_category(category) for category in FeedbackCategory},
            MISSING: "Missing (as assessed)",
            "None": "Comment only, no category",
        },
    }
    assert fields["rationale_7"] == {
        "default": None,
        "title": "1. Your rationale",
        "description": "Needed if you want the service to receive this correction.",
        "type": ["string", "null"],
        "format": "multiline",
    }
    assert (fields["category_8"]["title"], fields["category_8"]["description"]) == (
        "2. b.pdf: Response 8",
        None,
    )
    odd = Form([ReviewedFinding(9, "Odd", "Partly")]).fields["category_9"]
    assert (odd["default"], odd["title"]) == (None, "1. Odd")
    assert "(as assessed)" not in str(odd["values_display"])


def named(source: str, criterion: str = "D", framework: str = "DORA") -> ReviewedFinding:
    return ReviewedFinding(1, criterion, document=source, source=source, framework=framework)


@pytest.mark.parametrize(
    ("findings", "document", "framework"),
    [
        ([EXIT], "contract.pdf", "DORA"),
        ([named("a"), named("a", framework="GDPR")], "a", ""),
        ([named("a"), named("b")], "D in 2 documents", "DORA"),
        ([named("a"), named("b", "E"), named("c")], "3 documents", "DORA"),
        ([ReviewedFinding(1, document="a"), ReviewedFinding(2, document="b")], "results", ""),
        ([ReviewedFinding(1)], "results", ""),
    ],
)
def test_a_form_is_named_after_its_document_or_its_criterion(
    findings: list[ReviewedFinding], document: str, framework: str
) -> None:
    form = Form(findings, "results")
    assert (form.document, form.common("framework")) == (document, framework)


@pytest.mark.parametrize(
    ("findings", "subject"),
    [
        ([EXIT], "contract.pdf, DORA: 1 verdict worse (night of 17 Nov)"),
        ([replace(EXIT, night="soon", framework="")], "contract.pdf: 1 verdict worse (night of soon)"),
        (
            [
                ReviewedFinding(4, document="a"),
                *(ReviewedFinding(number, category=BAD, document="a") for number in (2, 3)),
                ReviewedFinding(1, category=GOOD, changed_from=BAD, document="a"),
                *(replace(EXIT, document="a", framework=""),) * 2,
            ],
            "a: 2 verdicts worse, 1 better, 2 not sufficiently regulated, 1 no category",
        ),
        (
            [replace(named(name), changed_from=GOOD, part="1 of 2", night="2026-11-18") for name in "abc"],
            "D in 3 documents, DORA: 3 verdicts worse (form 1 of 2, night of 18 Nov)",
        ),
        ([ReviewedFinding(1, document="x" * 200)], "x" * 159 + "…"),
    ],
)
def test_the_subject_says_how_many_and_how_bad(findings: list[ReviewedFinding], subject: str) -> None:
    assert Form(findings).subject == subject


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://example.com/a.pdf?x=1&y=(2)", "[Source](<https://example.com/a.pdf?x=1&y=(2)>)"),
        ("s3://bucket/a.pdf", r"Source: s3\:\/\/bucket\/a\.pdf"),
        ("javascript:alert(1)", r"Source: javascript\:alert\(1\)"),
        ("https://ada:secret@example.com/", rf"Source: https{JOINER}\:\/\/example\.com\/"),
        ("https://example.com/a b)", rf"Source: https{JOINER}\:\/\/example\.com\/a b\)"),
        ("https://example.com/>)[x](http://evil.example", None),
    ],
)
def test_only_what_a_browser_can_open_safely_is_a_link(uri: str, shown: str | None) -> None:
    line = Form([ReviewedFinding(1, source=uri)]).render().partition("\n")[0]
    assert "](<" not in line if shown is None else line == shown


@pytest.mark.parametrize(
    ("passage", "context", "shown"),
    [
        ("may [x]", "The client may [x] it.", ["In the text:", r"> The client **may \[x\]** it\."]),
        ("it", "The context is another one.", ["In the text:", "> **it**"]),
        (" ", "The client.", []),
    ],
)
def test_a_passage_is_bold_in_its_context(passage: str, context: str, shown: list[str]) -> None:
    body = Form([ReviewedFinding(1, "A", passage=passage, context=context)]).render()
    assert body.split("\n\n")[-len(shown) or None :][: len(shown)] == shown
    assert body.count("In the text") == bool(shown)


def test_a_long_text_is_cut() -> None:
    assert escape("word " * 1000, 20) == "word word word word…"
    assert to_line("x" * 21, 20) == "x" * 19 + "…"
    assert to_line("x" * 20, 20) == "x" * 20
    assert to_line("x" + " " * 80 + "y", 20) == "x…"


def test_a_category_reads_as_words() -> None:
    assert format_category("NOT_SUFFICIENTLY_REGULATED") == "Not sufficiently regulated"
    assert format_category(None) == "No category"


@given(st.text(max_size=300))
def test_every_sign_that_means_something_in_markdown_is_escaped(text: str) -> None:
    escaped = escape(text, 200)
    assert "\n" not in escaped
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", escaped)
    assert not re.search(r"[!-/:-@\[-`{-~]", bare)


@given(st.sampled_from(["http://", "HTTPS://", "www.", "ftp://", "mailto:", "a@"]), st.text(max_size=30))
def test_no_address_is_left_for_a_link_to_be_made_of(start: str, rest: str) -> None:
    shown = re.sub(r"\\(.)", r"\1", escape(f"see {start}b.example/{rest}", 200))
    assert not re.search(r"(?i)https?://|www\.|ftp://|mailto:|\w@\w", shown)
    assert JOINER in shown


def test_signs_that_turn_the_direction_or_hide_are_gone() -> None:
    assert to_line("a\u202eb\u200bc\x00d\ud800", 50) == "a b c d"


PARTLY = ReviewedFinding(2, "Audit", "Partly")
AGREE = {"agree_with_the_rest": True}
UNDECIDED = ("none", MISSING, "", None)


@pytest.mark.parametrize(
    ("answered", "decision", "warning"),
    [
        ({}, UNDECIDED, ""),  # the REST API may omit fields
        ({"category_7": MISSING, "agree_with_the_rest": False, "rationale_7": None}, UNDECIDED, ""),
        ({"category_7": None, "rationale_7": " "}, UNDECIDED, ""),
        ({**AGREE, "category_7": None}, UNDECIDED, ""),  # not left as it is
        ({"rationale_7": "So."}, ("commented", MISSING, "So.", MISSING), ""),
        ({**AGREE, "rationale_7": " So. "}, ("commented", MISSING, "So.", MISSING), ""),
        ({"category_7": None, "rationale_7": "So."}, ("commented", MISSING, "So.", None), ""),
        ({"category_7": BAD, "rationale_7": "So."}, ("changed", BAD, "So.", BAD), ""),
        ({"category_7": GOOD}, ("changed", GOOD, "", None), "'Exit' is recorded, but not sent"),
        (
            {**AGREE, "category_7": "INVENTED"},
            UNDECIDED,
            "the category 'INVENTED' of 'Exit', which does not exist.",
        ),
        ({"category_7": "INVENTED", "rationale_7": "So."}, ("commented", MISSING, "So.", None), "Ignored"),
        (
            {"category_7": "not sufficiently regulated", "rationale_7": "So."},
            ("changed", BAD, "So.", BAD),
            "",
        ),
        ({"category_7": "Missing"}, UNDECIDED, ""),
        ({"category_7": [BAD]}, UNDECIDED, f"Ignored the category '['{BAD}']' of 'Exit'"),
        ({**AGREE, "rationale_7": ["So", 1]}, UNDECIDED, "of 'Exit', which is not a text: ['So', 1]"),
        (
            {**AGREE, "category_9999": BAD, "x": 1, "rationale_7": "So."},
            ("commented", MISSING, "So.", MISSING),
            "Ignored fields that are not on the form: category_9999, x.",
        ),
    ],
)
def test_an_answer_means_a_decision(
    answered: dict[str, Any], decision: tuple[Any, ...], warning: str
) -> None:
    (found,), warnings = Form([EXIT]).parse(answered)
    names = ("decision", "category_after", "rational_feedback", "category_feedback")
    assert tuple(found[name] for name in names) == decision
    assert found["outcome"] == ("pending" if "So." in decision else "recorded")
    assert len(warnings) == bool(warning)
    assert warning in "".join(warnings)


def test_a_decision_says_what_it_is_about() -> None:
    (decision,), _ = Form([EXIT]).parse({"agree_with_the_rest": "true"})
    assert decision == {
        "document": "contract.pdf",
        "framework": "DORA",
        "criterion": "E-1",
        "source": EXIT.source,
        "night": EXIT.night,
        "cell": "c1",
        "findings": EXIT.findings,
        "framework_fingerprint": "",
        "text_sha256": "",
        "decision": "agreed",
        "category_before": MISSING,
        "category_after": MISSING,
        "rational_feedback": "",
        "assessment_response_id": 7,
        "category_feedback": None,
        "outcome": "recorded",
    }


def test_the_switch_agrees_with_what_is_left_as_it_is() -> None:
    answered = {**AGREE, "category_7": GOOD, "rationale_7": "So.", "category_2": None}
    decisions, _ = Form([EXIT, PARTLY, AUDIT]).parse(answered)
    assert [decision["decision"] for decision in decisions] == ["changed", "agreed", "agreed"]


@pytest.mark.parametrize("undecided", ["none", "expired"])
def test_a_form_that_is_not_filled_in_leaves_a_trace(undecided: str) -> None:
    decisions, warnings = Form([EXIT, PARTLY]).parse({}, undecided=undecided, is_sent=False)
    found = [(row["decision"], row["category_after"], row["outcome"]) for row in decisions]
    assert found == [(undecided, MISSING, "recorded"), (undecided, "Partly", "recorded")]
    assert not warnings


def test_what_was_typed_is_recorded_without_being_sent() -> None:
    answered = {"category_7": GOOD, "rationale_7": "Clause 9.", "rationale_2": "A note.", "category_8": GOOD}
    decisions, warnings = Form([EXIT, PARTLY, AUDIT]).parse({**AGREE, **answered}, is_sent=False)
    names = ("decision", "category_after", "rational_feedback", "category_feedback", "outcome")
    assert [tuple(row[name] for name in names) for row in decisions] == [
        ("changed", GOOD, "Clause 9.", None, "recorded"),
        ("commented", "Partly", "A note.", None, "recorded"),
        ("changed", GOOD, "", None, "recorded"),
    ]
    assert not warnings


def test_the_switch_of_another_form_agrees_only_with_findings_that_are_on_both() -> None:
    answered = {**AGREE, "category_7": MISSING, "category_99": GOOD}
    decisions, _ = Form([EXIT, AUDIT]).parse(answered)
    assert [row["decision"] for row in decisions] == ["agreed", "none"]


def test_findings_of_two_assessments_with_one_id_are_decided_apart() -> None:
    form = Form([EXIT, replace(EXIT, cell="c2", document="b.pdf"), AUDIT])
    names = [name for name in form.fields if name.startswith("rationale")]
    assert names == ["rationale_7-c1", "rationale_7-c2", "rationale_8"]
    decisions, _ = form.parse({"rationale_7-c2": "So.", "category_7-c1": GOOD}, outdated=["7-c1"])
    found = [(row["cell"], row["decision"], row["outcome"]) for row in decisions]
    assert found == [("c1", "changed", "recorded"), ("c2", "commented", "pending"), ("", "none", "recorded")]


def test_nothing_is_sent_on_a_verdict_that_has_changed_since() -> None:
    answered = {"rationale_7": "So.", "rationale_2": "So."}
    decisions, warnings = Form([EXIT, PARTLY]).parse(answered, outdated=["7-c1"])
    assert [decision["outcome"] for decision in decisions] == ["recorded", "pending"]
    assert "The verdicts on Exit changed" in warnings[0]


def test_an_answer_to_another_form_is_refused() -> None:
    with pytest.raises(ComplianceInputError, match=r"Nothing was sent\. Start a new DAG run"):
        Form([EXIT]).parse({"rationale_3": "So."})
