"""Pictures for the documentation: `make screenshots`, two minutes.

DAGs, a review and the connection form in the Airflow UI, and reports. Needs Chromium.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo.stage import INGESTION, NIGHTLY, ROOT, Amounts, staged
from tests.deployment.system import Run, deployed
from tests.support.browser import Page, open_page

IMAGES = ROOT / "docs" / "images"
REVIEW = "compliance_assess_and_review"
GRAPH = (1280, 400)
FORM = (1100, 900)
PAGE = (1200, 900)


def main() -> int:
    """Run two DAGs, and take a picture of each and of what they lead to."""
    with (
        tempfile.TemporaryDirectory(prefix="screenshots-") as name,
        staged(Path(name) / "stage", Amounts(), "seconds:1") as stage,
    ):
        home = Path(name) / "airflow"
        home.mkdir()
        camera = Camera(Path(name))
        with deployed(home, stage.settings()) as airflow:
            review = airflow.trigger(REVIEW)
            for dag_id in (INGESTION, NIGHTLY):
                airflow.wait_for_dag(dag_id)
            (ingestion,) = airflow.wait_for(lambda: airflow.runs(INGESTION), "the ingestion")
            (night,) = airflow.wait_for(lambda: airflow.runs(NIGHTLY), "the first night")
            if {run.wait_for_end()["state"] for run in (ingestion, night)} != {"success"}:
                print(f"A run has failed, so no picture was taken.{airflow.tails()}", file=sys.stderr)
                return 1
            stage.change()
            next_night = airflow.trigger(NIGHTLY)
            next_night.wait_for("success", "night.shard.assess")
            review.wait_for("awaiting_input", "review")
            for run in (ingestion, review):
                camera.take_graph(run)
            camera.take_review(f"{airflow.url}/dags/{REVIEW}/runs/{review.run_id}/tasks/review/mapped/0")
            camera.take_connection_form(airflow.url, stage.service.connection())
            reports = stage.texts.glob("**/report.html")
            largest = max(reports, key=lambda path: path.stat().st_size)  # with failures
            camera.take_report("ingestion_report", largest.as_uri())
            verdicts = stage.nights.glob("**/_assess/**/report.html")
            camera.take_report(
                "verdict_report", max(verdicts, key=lambda path: path.stat().st_mtime).as_uri()
            )
            closed = sorted(
                stage.nights.glob("**/_night/report-*.html"), key=lambda path: path.stat().st_mtime
            )
            for page in closed[-1:]:
                camera.take_report("night_report", page.as_uri())
    return 0


class Camera:
    """Takes pictures, each with a browser of its own.

    :param folder: where the browsers may keep their files
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take_graph(self, run: Run) -> None:
        """Save what the graph of a run looks like."""
        url = f"{run.deployment.url}/dags/{run.dag_id}/runs/{run.run_id}"
        with self._picture(run.dag_id.removeprefix("compliance_"), url, GRAPH) as page:
            page.wait_for("!!document.querySelector('#root *')")
            # What the button "Graph" does, for all pages that come.
            page.evaluate("localStorage.setItem('default_dag_view', JSON.stringify('graph'))")
            page.reload()
            page.wait_for("document.querySelectorAll('.react-flow__node').length > 2")
            page.click("[aria-label='Collapse Details Panel']")
            page.evaluate("document.querySelector('.react-flow__minimap').remove()")
            page.wait_for(f"document.querySelector('.react-flow').clientWidth > {GRAPH[0]} - 150")
            page.click("[aria-label='Fit View']")

    def take_review(self, task: str) -> None:
        """Save what the form of a review looks like.

        :param task: the page of the task instance
        """
        with self._picture("review_form", f"{task}/required_actions", FORM) as page:
            page.wait_for("!!document.querySelector('[name^=element_], textarea')")

    def take_connection_form(self, airflow: str, connection: dict[str, Any]) -> None:
        """Save what the form of a connection looks like.

        :param airflow: URL of the user interface
        """
        dialog = "document.querySelector('[role=dialog]')"
        with self._picture("connection_form", f"{airflow}/connections", FORM) as page:
            add = "[...document.querySelectorAll('button')].find(it => it.innerText.includes('Add Conn'))"
            page.wait_for(f"{add} && !{add}.disabled")
            page.evaluate(f"{add}.click()")
            _fill(page, "connection_id", "compliance_default")
            page.click("[role=dialog] [role=combobox]")
            page.type("Document compl")
            page.wait_for("document.querySelectorAll('[role=option]').length == 1")
            page.press_enter()
            for name, value in {"host": "https://api.example.com", "port": "443", "login": "alice"}.items():
                _fill(page, name, value)
            _fill(page, "password", connection["password"])
            page.click("[id$='trigger:Extra Fields']")
            page.wait_for(f"{dialog}.innerText.includes('Client secret')")
            _fill(page, "element_token_url", "https://id.example.com/token")
            _fill(page, "element_client_id", "partner-42")
            _fill(page, "element_client_secret", connection["extra"]["client_secret"])
            page.evaluate("document.querySelector('[name=connection_id]').scrollIntoView({block: 'center'})")

    def take_report(self, name: str, url: str) -> None:
        """Save what a report looks like."""
        with self._picture(name, url, PAGE) as page:
            page.wait_for("document.querySelectorAll('svg').length > 0")

    @contextmanager
    def _picture(self, name: str, url: str, size: tuple[int, int]) -> Iterator[Page]:
        """Open a page, and take a picture of it after the block."""
        target = IMAGES / f"{name}.png"
        with open_page(url, self._folder / f"chromium-{name}", size) as page:
            yield page
            page.screenshot(target, *size)
        print(f"{target.relative_to(ROOT)}  {target.stat().st_size / 1000:.0f} kB")


def _fill(page: Page, name: str, value: str) -> None:
    field = f"document.querySelector('[name={name}]')"
    page.wait_for(f"{field} && ({field}.focus(), document.activeElement === {field})")
    page.type(value)
    page.wait_for(f"{field}.value == {json.dumps(value)}")


if __name__ == "__main__":
    sys.exit(main())
