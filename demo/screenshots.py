"""Pictures of DAGs in Airflow's user interface for the documentation: `make screenshots`, a minute.

Needs Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from demo.stage import NIGHTLY, ROOT, Amounts, staged
from tests.deployment.system import Run, deployed
from tests.emulator.browser import open_page

IMAGES = ROOT / "docs" / "images"
REVIEW = "compliance_assess_and_review"
SIZE = (1280, 400)


def main() -> int:
    """Run two DAGs and take a picture of each."""
    with (
        tempfile.TemporaryDirectory(prefix="screenshots-") as name,
        staged(Path(name) / "stage", Amounts(), "seconds:1") as stage,
    ):
        home = Path(name) / "airflow"
        home.mkdir()
        with deployed(home, stage.settings()) as airflow:
            review = airflow.trigger(REVIEW)
            airflow.wait_for_dag(NIGHTLY)
            (night,) = airflow.wait_for(lambda: airflow.runs(NIGHTLY), "the nightly run")
            night.wait_for_end()
            review.wait_for("awaiting_input", "review")
            for run in (night, review):
                target = IMAGES / f"{run.dag_id.removeprefix('compliance_')}.png"
                take(run, target, Path(name) / f"chromium-{run.dag_id}")
                print(f"{target.relative_to(ROOT)}  {target.stat().st_size / 1000:.0f} kB")
    return 0


def take(run: Run, target: Path, profile: Path) -> None:
    """Save what the graph of a run looks like."""
    target.parent.mkdir(parents=True, exist_ok=True)
    url = f"{run.deployment.url}/dags/{run.dag_id}/runs/{run.run_id}"
    with open_page(url, profile, SIZE) as page:
        page.wait_for("!!document.querySelector('#root *')")
        # What the button "Graph" does, for all pages that come.
        page.evaluate("localStorage.setItem('default_dag_view', JSON.stringify('graph'))")
        page.reload()
        page.wait_for("document.querySelectorAll('.react-flow__node').length > 2")
        page.click("[aria-label='Collapse Details Panel']")
        page.evaluate("document.querySelector('.react-flow__minimap').remove()")
        page.wait_for(f"document.querySelector('.react-flow').clientWidth > {SIZE[0]} - 150")
        page.click("[aria-label='Fit View']")
        page.screenshot(target, *SIZE)


if __name__ == "__main__":
    sys.exit(main())
