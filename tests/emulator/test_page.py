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

    page.wait_for("document.querySelectorAll('#jobs .badge.PENDING').length === 2")
    assert page.evaluate(has("outsourcing.pdf"))
    assert page.evaluate(has("broken.pdf"))
    assert page.evaluate(has(uuid))

    service.finish_jobs()
    page.wait_for("document.querySelectorAll('#jobs .badge.COMPLETED').length === 1")
    page.wait_for(has("The PDF document is damaged"))


def rows(table: str) -> str:
    """Return the JavaScript for the cells of a table."""
    found = f"[...document.querySelectorAll('#{table} tbody tr')]"
    return f"{found}.map(row => [...row.cells].map(it => it.innerText))"


# The lowest ratio of the luminances of a text and of what is behind it, over all texts of the page (WCAG 2).
CONTRAST = """(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (color) => parse(color).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return parse(color)[3] === 0 && node.parentElement ? behind(node.parentElement) : color;
  };
  const texts = [...document.body.querySelectorAll('*')].filter((node) => node.checkVisibility() &&
    [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim()));
  return Math.min(...texts.map((node) => {
    const [dark, light] = [getComputedStyle(node).color, behind(node)].map(luminance).sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }));
})()"""


@pytest.mark.browser
@pytest.mark.compliance_service(jobs="manual")
def test_the_page_fits_a_phone_and_can_be_read_in_light_and_dark(
    page: Page, raw: Raw, service: Emulator
) -> None:
    service.add_job(text="Fine", status="COMPLETED", file_name=f"{'long' * 50}.pdf")
    service.add_job(error="Damaged", status="FAILED", url=f"https://example.com/{'a' * 300}")
    service.add_job(status="RUNNING")
    service.add_job(status="PENDING")
    raw.get(f"/api/v1/{'nothing' * 50}")
    service.fail("get_content", status=302, location=f"https://example.com/{'b' * 300}")
    service.fail_jobs("Out of memory. " * 20, match=f"{'c' * 100}*.pdf")
    service.add_assessment({"text": "audit"})
    raw.post("/api/v1/assessmentFeedback", json={"expertId": "e" * 200, "rationalFeedback": "r" * 300})
    page.wait_for(has("r" * 300))
    page.wait_for(has("nothingnothing"))

    backgrounds = set()
    for scheme in ("light", "dark"):
        assert (
            page.evaluate_on_screen("document.documentElement.scrollWidth", width=400, scheme=scheme) == 400
        )
        assert page.evaluate_on_screen(CONTRAST, width=400, scheme=scheme) >= 4.5
        script = "getComputedStyle(document.body).backgroundColor"
        backgrounds.add(page.evaluate_on_screen(script, width=400, scheme=scheme))
    assert len(backgrounds) == 2
    # Rows are blocks here: each value is labeled with the heading of its column.
    script = (
        "[...document.querySelectorAll('#failures td')].map(it => getComputedStyle(it, '::before').content)"
    )
    assert page.evaluate_on_screen(script, width=400) == ['"Name"', '"Error"', '"Left"', '"So far"']
    assert page.evaluate_on_screen(script, width=1280) == ["none"] * 4


@pytest.mark.browser
def test_the_page_asks_nobody_but_the_emulator(page: Page, service: Emulator) -> None:
    asked = page.evaluate("performance.getEntriesByType('resource').map(it => it.name)")

    assert {"page.css", "page.js"} <= {each.rpartition("/")[2] for each in asked}
    assert all(each.startswith(f"http://127.0.0.1:{service.port}/_emulator/") for each in asked)


@pytest.mark.browser
@pytest.mark.compliance_service(jobs="manual")
def test_the_buttons_do_what_they_say(page: Page, raw: Raw, service: Emulator) -> None:
    uuid = raw.submit()
    service.fail("cancel", status=500)
    service.fail_jobs("Out of memory.", times=None)
    page.wait_for(has(uuid))
    page.wait_for(has("Out of memory."))

    page.evaluate("document.querySelector('[data-post=\"jobs/finish\"]').click()")
    page.wait_for("document.querySelector('#jobs .badge.COMPLETED') !== null")
    page.evaluate("document.querySelector('[data-delete]').click()")
    for table in ("faults", "failures"):
        page.wait_for(f"document.getElementById('{table}').innerText.includes('None.')")
    assert service.faults() == service.planned_failures() == []
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
