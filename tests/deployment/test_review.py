"""An expert reviews an assessment in Airflow's user interface, by clicking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deployment.conftest import Service
from tests.deployment.system import Deployment, Run
from tests.emulator.browser import Page, find_chromium, open_page

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


def assessed(service: Service) -> tuple[str, list[dict[str, Any]]]:
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


def sent(service: Service) -> list[tuple[Any, ...]]:
    names = ("expertId", "assessmentResponseId", "categoryFeedback", "rationalFeedback")
    return [tuple(each.get(name) for name in names) for each in service.feedback()]


def test_answers_that_are_clicked_arrive_once_also_after_a_clear(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    uuid, results = assessed(service)
    first, third = results[0]["assessmentResponseId"], results[2]["assessmentResponseId"]
    run = deployment.trigger("review_assessment", assessment_id=uuid)
    with form_of(run, tmp_path / "chromium") as page:
        write(page, first, "Clause 2 says so, and it binds staff as well.")
        choose(page, third, "Missing")
        write(page, third, "Transit alone is no measure.\nClause 5 is about invoices.")
        page.screenshot(tmp_path / "form.png", 1400, 2600)
        page.click(SEND)
        assert run.wait_for_end()["state"] == "success"

    user = "Anonymous"
    expected = [
        (user, first, results[0]["category"], "Clause 2 says so, and it binds staff as well."),
        (user, third, "MISSING", "Transit alone is no measure.\nClause 5 is about invoices."),
    ]
    assert sent(service) == expected
    returned = run.returned("review")
    assert [each["assessment_response_id"] for each in returned] == [first, third]
    assert {each["outcome"] for each in returned} == {"sent"}
    run.wait_for_end()  # or the scheduler ends the run after the clear

    run.clear("review")
    run.wait_for("success", "review", tries=2)
    assert run.returned("review") == returned
    assert sent(service) == expected
    assert "nothing is asked again" in run.log("review", 2)


def test_a_retry_sends_only_what_was_not_sent_and_asks_nobody_again(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    uuid, results = assessed(service)
    ids = [each["assessmentResponseId"] for each in results[:3]]
    run = deployment.trigger("review_assessment", assessment_id=uuid, expert_id="e-17")
    with form_of(run, tmp_path / "chromium") as page:
        for number in ids:
            write(page, number, f"On {number}.")
        # The second one is surely not taken, which ends the attempt; the retry goes on there.
        service.fail("submit_feedback", status=429, retry_after=0, times=6, skip=1)
        page.click(SEND)
        assert run.wait_for_end()["state"] == "success"

    assert [(each[0], each[1]) for each in sent(service)] == [("e-17", number) for number in ids]
    assert len(run.returned("review")) == 3
    assert run.tasks("review")[0]["try_number"] == 2


def test_a_form_that_waits_is_still_there_after_a_clear(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    uuid, results = assessed(service)
    number = results[0]["assessmentResponseId"]
    run = deployment.trigger("review_assessment", assessment_id=uuid)
    run.wait_for("awaiting_input", "review")
    run.clear("review")
    run.wait_for("awaiting_input", "review", tries=2)
    with form_of(run, tmp_path / "chromium") as page:
        write(page, number, "Agreed.")
        page.click(SEND)
        assert run.wait_for_end()["state"] == "success"
    assert [each[1] for each in sent(service)] == [number]


def test_an_answer_is_not_lost_where_the_attempt_dies_that_should_read_it(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    uuid, results = assessed(service)
    number = results[0]["assessmentResponseId"]
    run = deployment.trigger("review_and_die", assessment_id=uuid)
    with form_of(run, tmp_path / "chromium") as page:
        write(page, number, "Only once.")
        page.click(SEND)
        assert run.wait_for_end()["state"] == "success"
    assert [each[1] for each in sent(service)] == [number]
    # LocalExecutor may take a resumption at once for a fault, and end it, also in the middle of sending: an
    # attempt after that does not know whether the feedback arrived, and does not send it again.
    tries = run.tasks("review")[0]["try_number"]
    assert tries > 1
    assert run.returned("review")[0]["outcome"] in (["sent"] if tries == 2 else ["sent", "uncertain"])


def test_a_category_without_a_rationale_is_asked_for_again_and_nothing_else_is_lost(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    uuid, results = assessed(service)
    first, third = results[0]["assessmentResponseId"], results[2]["assessmentResponseId"]
    run = deployment.trigger("review_assessment", assessment_id=uuid)
    with form_of(run, tmp_path / "first") as page:
        write(page, first, "Agreed.")
        choose(page, third, "Missing")
        page.click(SEND)
        assert run.wait_for_end()["state"] == "failed"
    assert [each[1] for each in sent(service)] == [first]
    assert "changed without a rationale" in run.log("review")

    run.clear("review")
    run.wait_for("awaiting_input", "review", tries=2)
    with form_of(run, tmp_path / "second") as page:
        choose(page, third, "Missing")
        write(page, third, "It is not there.")
        page.click(SEND)
        assert run.wait_for_end()["state"] == "success"
    assert [each[1] for each in sent(service)] == [first, third]


def test_foreign_text_shows_as_it_is_and_links_to_nowhere(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    finding = {"id": 7, "name": HOSTILE, "category": HOSTILE, "rationale": HOSTILE, "score": 0.5}
    run = deployment.trigger("review_results", results=[finding])
    with form_of(run, tmp_path / "chromium") as page:
        page.screenshot(tmp_path / "hostile.png")
        shown = page.evaluate("document.querySelector('blockquote').innerText")
        reached = "[...document.querySelectorAll('a, img')].map(each => each.href || each.src)"
        assert not [each for each in page.evaluate(reached) if "evil" in each]
        assert page.evaluate("document.querySelectorAll('h1').length") == 0
    assert shown.replace("\u2060", "") == " ".join(HOSTILE.split())
