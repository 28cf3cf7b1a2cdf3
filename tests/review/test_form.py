"""What an expert reads: readable, with the service's text escaped."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.client.findings import Finding
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.review.form import (
    JOINER,
    describe_findings,
    escape,
    format_category,
    parse_answers,
    render,
    to_line,
)
from airflow_provider.review.selection import Selection

SHOWN = """\
From the *author*.

### 2 findings to review: 1 missing · 1 not sufficiently regulated

- To give feedback on a finding, write a **rationale** below, and correct the **category** where it is wrong.
- The service takes no feedback without a rationale. A corrected category without one is recorded, not sent.
- If you have looked at a finding and agree with it, switch on **Agreed**: this is recorded, not sent.
- No feedback is sent on findings that you leave unchanged.
- **Send feedback** sends all of them, **No feedback** none. Both record what you agreed with.

*Findings that are not on the form: 2 without a response ID; 1 beyond the limit.*

---

#### 1\\. Exit (E\\-1)

**Missing** · score 0.25 · response 7

> Nothing was found\\.

#### 2\\. Response 8

**Not sufficiently regulated** · response 8

> *The service gave no rationale.*"""


def test_findings_are_numbered_with_category_score_and_rationale() -> None:
    findings = (
        Finding(7, "Exit", "MISSING", "Nothing was\nfound.", 0.25, "E-1"),
        Finding(8, "", "NOT_SUFFICIENTLY_REGULATED"),
    )
    left_out = Counter({"without a response ID": 2, "decided by an expert before": 0, "beyond the limit": 1})
    assert render(Selection(findings, left_out), "From the *author*.") == SHOWN


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://example.com/a.pdf?x=1&y=(2)", "[Source](<https://example.com/a.pdf?x=1&y=(2)>)"),
        ("s3://bucket/a.pdf", r"Source: s3\:\/\/bucket\/a\.pdf"),
        ("javascript:alert(1)", r"Source: javascript\:alert\(1\)"),
        (
            "https://ada:secret@example.com/",
            rf"Source: https{JOINER}\:\/\/example\.com\/",
        ),
        ("https://example.com/a b)", rf"Source: https{JOINER}\:\/\/example\.com\/a b\)"),
        ("https://example.com/>)[x](http://evil.example", None),
    ],
)
def test_only_what_a_browser_can_open_safely_is_a_link(uri: str, shown: str | None) -> None:
    body = render(Selection(()), links={"Source": uri})
    line = body.partition("\n")[0]
    assert "](<" not in line if shown is None else line == shown


def test_findings_of_several_frameworks_name_theirs() -> None:
    findings = (Finding(1, "A", framework="DORA"), Finding(2, "B", framework="GDPR"))
    body = render(Selection(findings), reviewed="a.pdf")
    assert body.startswith("**a\\.pdf**\n\n### 2 findings")
    assert "**No category** · DORA · response 1" in body
    assert "**No category** · GDPR · response 2" in body


def test_a_passage_is_bold_in_its_context() -> None:
    finding = Finding(1, "A", passage="may [inspect](x)", context="The client may [inspect](x) it.")
    body = render(Selection((finding,)))
    assert body.endswith("In the text:\n\n> The client **may \\[inspect\\]\\(x\\)** it\\.")


def test_a_long_text_is_cut() -> None:
    assert escape("word " * 1000, 20) == "word word word word…"
    assert to_line("x" * 21, 20) == "x" * 19 + "…"
    assert to_line("x" * 20, 20) == "x" * 20


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


GOOD, BAD = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED"
SHOWN_FINDINGS = describe_findings([Finding(1, "Exit", "MISSING"), Finding(2, "Audit", "Partly")])


@pytest.mark.parametrize(
    ("answered", "decision", "warning"),
    [
        ({}, None, ""),  # the REST API may omit fields
        ({"category_1": "MISSING", "agreed_1": False, "rationale_1": None}, None, ""),  # left as it is
        ({"category_1": None, "rationale_1": " "}, None, ""),
        ({"agreed_1": True}, ("agreed", "MISSING", "", None), ""),
        ({"agreed_1": "true", "rationale_1": " So. "}, ("agreed", "MISSING", "So.", "MISSING"), ""),
        ({"rationale_1": "So."}, ("commented", "MISSING", "So.", "MISSING"), ""),
        ({"category_1": None, "rationale_1": "So."}, ("commented", "MISSING", "So.", None), ""),
        ({"category_1": BAD, "rationale_1": "So."}, ("changed", BAD, "So.", BAD), ""),
        ({"category_1": BAD, "agreed_1": True, "rationale_1": "So."}, ("changed", BAD, "So.", BAD), ""),
        ({"category_1": GOOD}, ("changed", GOOD, "", None), "'Exit' is recorded, but not sent"),
        ({"category_1": "INVENTED"}, None, "Ignored the category of 'Exit'"),
        (
            {"category_1": "INVENTED", "rationale_1": "So."},
            ("commented", "MISSING", "So.", "MISSING"),
            "Ignored",
        ),
        ({"category_2": None, "rationale_2": "So."}, ("commented", "Partly", "So.", None), ""),
    ],
)
def test_an_answer_means_a_decision(answered: dict[str, Any], decision: Any, warning: str) -> None:
    decisions, warnings = parse_answers(answered, SHOWN_FINDINGS)
    names = ("decision", "category_after", "rational_feedback", "category_feedback")
    assert [tuple(each[name] for name in names) for each in decisions] == [decision] * bool(decision)
    assert len(warnings) == bool(warning)
    assert warning in "".join(warnings)
    agreed, _ = parse_answers(answered, SHOWN_FINDINGS, with_feedback=False)
    assert [each["decision"] for each in agreed] == ["agreed"] * (
        "agreed_1" in answered and bool(answered["agreed_1"])
    )


def test_an_answer_to_another_form_is_refused() -> None:
    with pytest.raises(ComplianceInputError, match=r"Nothing was sent\. Start a new DAG run"):
        parse_answers({"rationale_3": "So."}, SHOWN_FINDINGS)
