"""An expert reviews an assessment in Airflow's user interface, by clicking.

Failed submits, retries at any moment and unread answers are tested in `tests/operators/test_review*.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deployment.conftest import RecordingEmulator
from tests.deployment.system import Deployment, Run
from tests.support.browser import Page, find_chromium, open_page

pytestmark = [pytest.mark.deployment, pytest.mark.browser]

TEXT = (
    "The processor processes personal data only on documented instructions of the controller. Encryption is "
    "applied to data in transit. A sub-processor may be engaged after notice."
)
HOSTILE = (
    "See https://evil.example/?a=1, www.evil.example, me@evil.example, [here](http://evil.example) and "
    "![x](http://evil.example/x.png)<img src=http://evil.example/y.png>\n\n# Heading\n\n<http://evil.example>"
)
SEND = "[data-testid='hitl-option-Send feedback']"


@pytest.fixture(autouse=True)
def _with_a_browser() -> None:
    find_chromium()


def assessed(service: RecordingEmulator) -> tuple[str, list[dict[str, Any]]]:
    made = service.add_assessment({"text": TEXT, "frameworkId": 2})
    return made["uuid"], made["results"]


@contextmanager
def form_of(run: Run, profile: Path) -> Iterator[Page]:
    """Open the form of a waiting task as a person finds it: the task's tab of required actions."""
    run.wait_for("awaiting_input", "review")
    url = f"{run.deployment.url}/dags/{run.dag_id}/runs/{run.run_id}/tasks/review/required_actions"
    with open_page(url, profile) as page:
        page.wait_for(f'!!document.querySelector("{SEND}")')
        try:
            yield page
        except AssertionError as error:
            error.add_note(f"The page shows:\n{page.evaluate('document.body.innerText')}")
            raise


def choose(page: Page, number: int, category: str) -> None:
    page.click(f"#element_category_{number} input")
    page.type(category)
    page.wait_for(
        f"[...document.querySelectorAll('[role=option]')].some(each => each.innerText.includes('{category}'))"
    )
    page.press_enter()


def write(page: Page, number: int, text: str) -> None:
    page.click(f"#element_rationale_{number}")
    page.type(text)
    page.wait_for(f"document.querySelector('#element_rationale_{number}').value == {json.dumps(text)}")


def sent(service: RecordingEmulator) -> list[tuple[Any, ...]]:
    names = ("expertId", "assessmentResponseId", "categoryFeedback", "rationalFeedback")
    return [tuple(feedback.get(name) for name in names) for feedback in service.feedback()]


def test_answers_that_are_clicked_arrive_once_despite_clears(
    deployment: Deployment, service: RecordingEmulator, tmp_path: Path
) -> None:
    uuid, results = assessed(service)
    first, third = results[0]["assessmentResponseId"], results[2]["assessmentResponseId"]
    run = deployment.trigger("review_assessment", assessment_id=uuid)
    run.wait_for("awaiting_input", "review")
    run.clear("review")
    run.wait_for("awaiting_input", "review", tries=2)
    with form_of(run, tmp_path / "chromium") as page:
        write(page, first, "Clause 2 says so, and it binds staff as well.")
        choose(page, third, "Missing")
        write(page, third, "Transit alone is not enough.\nClause 5 is about invoices.")
        page.screenshot(tmp_path / "form.png", 1400, 2600)
        page.click(SEND)
        assert run.wait_for_end()["state"] == "success"

    user = "Anonymous"
    expected = [
        (user, first, results[0]["category"], "Clause 2 says so, and it binds staff as well."),
        (user, third, "MISSING", "Transit alone is not enough.\nClause 5 is about invoices."),
    ]
    assert sorted(sent(service)) == expected
    returned = run.returned("review")
    decided = [row for row in returned if row["decision"] != "none"]
    assert {row["assessment_response_id"] for row in decided} == {first, third}
    assert {row["outcome"] for row in decided} == {"sent"}
    assert len(returned) == len(results)
    attempt = run.tasks("review")[0]["try_number"] + 1

    run.clear("review")
    run.wait_for("success", "review", tries=attempt)
    assert run.returned("review") == returned
    assert sorted(sent(service)) == expected
    assert "nothing is asked again" in run.log("review", attempt)


def test_foreign_text_shows_as_it_is_and_links_to_nowhere(
    deployment: Deployment, service: RecordingEmulator, tmp_path: Path
) -> None:
    finding = {"id": 7, "name": HOSTILE, "category": HOSTILE, "rationale": HOSTILE, "score": 0.5}
    run = deployment.trigger("review_results", results=[finding])
    with form_of(run, tmp_path / "chromium") as page:
        page.screenshot(tmp_path / "hostile.png")
        shown = page.evaluate("document.querySelector('blockquote').innerText")
        reached = "[...document.querySelectorAll('a, img')].map(each => each.href || each.src)"
        assert not [url for url in page.evaluate(reached) if "evil" in url]
        assert page.evaluate("document.querySelectorAll('h1').length") == 0
    assert shown.replace("\u2060", "") == " ".join(HOSTILE.split())
