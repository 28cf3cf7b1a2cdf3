from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import requests

from airflow_provider.emulator.samples import make_pdf
from tests.emulator.browser import open_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_provider.emulator import Emulator
    from tests.emulator.browser import Page
    from tests.emulator.raw import Raw


@pytest.fixture
def page(tmp_path: Path, service: Emulator) -> Iterator[Page]:
    with open_page(f"http://127.0.0.1:{service.port}/", tmp_path / "profile") as opened:
        opened.wait_for("document.getElementById('live')?.textContent === 'live'")
        yield opened


def has(text: str) -> str:
    """Return the JavaScript that looks for a text on the page."""
    return f"document.body.innerText.includes({text!r})"


@pytest.mark.browser
@pytest.mark.compliance_service(jobs="manual")
def test_a_submitted_job_appears_on_the_open_page_and_changes_its_state(
    page: Page, raw: Raw, service: Emulator
) -> None:
    assert not page.evaluate(has("outsourcing.pdf"))
    uuid = raw.submit(make_pdf("The provider grants audit rights."), "outsourcing.pdf")
    raw.submit(b"%PDF-1.4 broken", "broken.pdf")

    page.wait_for(has("outsourcing.pdf"))
    assert page.evaluate(has(uuid))
    assert page.evaluate("document.querySelectorAll('#jobs .badge.PENDING').length") == 2

    service.finish_jobs()
    page.wait_for("document.querySelectorAll('#jobs .badge.COMPLETED').length === 1")
    page.wait_for(has("The PDF document is damaged"))


@pytest.mark.browser
def test_a_click_on_a_job_shows_its_text_and_another_closes_it(page: Page, service: Emulator) -> None:
    service.add_job(text="Line one\nLine two", file_name="a.pdf")
    page.wait_for("document.querySelector('#jobs tr.job') !== null")

    page.evaluate("document.querySelector('#jobs tr.job').click()")
    page.wait_for("document.getElementById('text').textContent === 'Line one\\nLine two'")
    assert page.evaluate("!document.getElementById('text-panel').hidden")

    page.evaluate("document.getElementById('text-close').click()")
    page.wait_for("document.getElementById('text-panel').hidden")


@pytest.mark.browser
def test_faults_calls_tokens_assessments_and_feedback_are_shown(
    page: Page, raw: Raw, service: Emulator
) -> None:
    raw.submit()
    raw.get("/api/v1/nothing")
    service.fail("get_content", status=503, retry_after=2, times=3)
    service.fail("submit_file", reset="middle", times=None)
    number = service.add_assessment({"text": "audit"})["results"][0]["assessmentResponseId"]
    feedback = {"expertId": "expert-7", "rationalFeedback": "Look again", "assessmentResponseId": number}
    raw.post("/api/v1/assessmentFeedback", json=feedback)

    page.wait_for(has("Look again"))
    page.wait_for(has("answers 503, Retry-After: 2"))
    for text in ("resets the connection (middle)", "submit_file", "expert-7", "MISSING", "/api/v1/nothing"):
        page.wait_for(has(text))
    assert page.evaluate("document.querySelector('#tokens tbody').innerText").split()[1:3] == [
        "partner",
        "password",
    ]


@pytest.mark.browser
@pytest.mark.compliance_service(jobs="manual")
def test_the_buttons_do_what_they_say(page: Page, raw: Raw, service: Emulator) -> None:
    uuid = raw.submit()
    service.fail("cancel", status=500)
    page.wait_for(has(uuid))

    page.evaluate("document.querySelector('[data-post=\"jobs/finish\"]').click()")
    page.wait_for("document.querySelector('#jobs .badge.COMPLETED') !== null")
    page.evaluate("document.querySelector('[data-delete=faults]').click()")
    page.wait_for("document.getElementById('faults').innerText.includes('None.')")
    assert service.faults() == []
    page.evaluate("window.confirm = () => true; document.querySelector('[data-post=reset]').click()")
    page.wait_for(has("No jobs yet."))
    assert service.jobs() == []


@pytest.mark.browser
def test_hostile_names_texts_and_errors_stay_text(page: Page, raw: Raw, service: Emulator) -> None:
    attack = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    uuid = service.add_job(file_name=attack, text=attack)
    service.add_job(error=attack, status="FAILED")
    service.add_job(status=attack)
    raw.post("/api/v1/assessmentFeedback", json={"expertId": attack, "rationalFeedback": attack})
    page.evaluate(f"location.hash = '{uuid}'")

    page.wait_for("document.getElementById('text').textContent.startsWith('<img')")
    page.wait_for("document.querySelector('#feedback tbody').innerText.includes('<img')")

    assert page.evaluate("document.body.innerText.split('<img src=x').length - 1") >= 6
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert page.evaluate("document.title") == "Compliance emulator"


@pytest.mark.browser
def test_the_page_says_when_the_emulator_is_gone_and_comes_back_with_it(
    page: Page, service: Emulator
) -> None:
    service.stop()
    page.wait_for("document.getElementById('live').textContent === 'no answer'")

    service.start()

    page.wait_for("document.getElementById('live').textContent === 'live'")


def test_the_page_forbids_scripts_that_are_not_its_own(service: Emulator) -> None:
    answer = requests.get(f"http://127.0.0.1:{service.port}/", timeout=30)

    assert answer.headers["Content-Type"].startswith("text/html")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
        part = requests.get(f"http://127.0.0.1:{service.port}/_emulator/{name}", timeout=30)
        assert part.headers["Content-Type"].startswith(kind)


def test_a_text_that_looks_like_a_page_is_not_shown_as_one(service: Emulator) -> None:
    uuid = service.add_job(text="<script>alert(1)</script>")

    answer = requests.get(f"http://127.0.0.1:{service.port}/_emulator/jobs/{uuid}/text", timeout=30)

    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == "sandbox"
