from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import requests

from tests.emulator.documents import make_pdf

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider.emulator import Emulator
    from tests.emulator.raw import Raw

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=5000",
]


@pytest.fixture
def browser(tmp_path: Path, service: Emulator) -> Browser:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return Browser(program, tmp_path / "profile", f"http://127.0.0.1:{service.port}/")


class Browser:
    """Opens the page and returns what stands on it after its script has run."""

    def __init__(self, program: str, profile: Path, url: str) -> None:
        self.command = [program, *FLAGS, f"--user-data-dir={profile}", "--dump-dom"]
        self.url = url

    def read(self, fragment: str = "") -> str:
        done = subprocess.run(
            [*self.command, self.url + fragment], capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout


@pytest.mark.browser
def test_a_submitted_job_stands_on_the_page_with_its_state_and_text(
    browser: Browser, raw: Raw, service: Emulator
) -> None:
    uuid = raw.submit(make_pdf("The provider grants audit rights."), "outsourcing.pdf")
    raw.submit(b"%PDF-1.4 broken", "broken.pdf")
    raw.content(uuid)
    service.fail("get_content", status=503, retry_after=2, times=3)

    page = browser.read(f"#{uuid}")

    assert "outsourcing.pdf" in page
    assert uuid in page
    assert '<span class="badge COMPLETED">COMPLETED</span>' in page
    assert '<span class="badge FAILED">FAILED</span>' in page
    assert "The PDF document is damaged" in page
    assert '<pre id="text">The provider grants audit rights.</pre>' in page
    assert "answers 503, Retry-After: 2" in page
    assert re.search(r"submit_file</td><td><span class=\"answer\">202 . 2</span>", page)
    assert "<td>partner</td><td>password</td>" in page
    assert ">live</span>" in page


@pytest.mark.browser
def test_hostile_names_and_texts_stay_text(browser: Browser, service: Emulator) -> None:
    attack = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    uuid = service.add_job(file_name=attack, text=attack)
    service.add_job(error=attack, status="FAILED")

    page = browser.read(f"#{uuid}")

    assert "<title>Compliance emulator</title>" in page
    assert "<img" not in page
    assert page.count("&lt;img src=x") >= 4


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
