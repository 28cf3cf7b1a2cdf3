"""Airflow's own pages in a browser: the form of the connection, its test, and the links of tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from airflow_provider.provider_info import CONNECTION_FIELDS
from tests.deployment.system import Deployment, Run
from tests.e2e.stage import Stage
from tests.support.browser import Page, find_chromium, open_page

pytestmark = [pytest.mark.distributed, pytest.mark.browser]

NAME = "from_the_form"
ROW = f"[...document.querySelectorAll('tr')].find(each => each.innerText.includes('{NAME}'))"


@pytest.fixture(autouse=True)
def _with_a_browser() -> None:
    find_chromium()


def click_on(page: Page, found: str) -> None:
    """Click on the element that a script finds."""
    page.evaluate("document.querySelectorAll('[data-it]').forEach(each => delete each.dataset.it)")
    page.evaluate(f"{found}.dataset.it = ''")
    page.click("[data-it]")


def press(page: Page, text: str) -> None:
    """Click on the button with a text."""
    found = f"[...document.querySelectorAll('button')].find(each => each.innerText.includes('{text}'))"
    page.wait_for(f"{found} && !{found}.disabled")
    click_on(page, found)


def fill(page: Page, **values: str) -> None:
    for name, value in values.items():
        field = f"document.querySelector('[name={name}]')"
        # Not by a click: what unfolds is still on its way.
        page.wait_for(f"{field} && ({field}.focus(), document.activeElement === {field})")
        page.type(value)
        page.wait_for(f"{field}.value == {json.dumps(value)}")


def test_a_connection_is_filled_in_saved_and_tested(
    deployment: Deployment, stage: Stage, tmp_path: Path
) -> None:
    wanted = stage.service.connection()
    # Airflow 3.3.2 tests no stored connection that has no port.
    address = urlsplit(wanted["host"])
    with open_page(f"{deployment.url}/connections", tmp_path / "chromium") as page:
        press(page, "Add Connection")
        fill(page, connection_id=NAME)
        page.click("[role=dialog] [role=combobox]")
        page.type("Document compl")
        page.wait_for("document.querySelectorAll('[role=option]').length == 1")
        page.press_enter()
        fill(page, host=f"{address.scheme}://{address.hostname}", port=str(address.port))
        fill(page, login=wanted["login"], password=wanted["password"])
        labels = page.evaluate("document.querySelector('[role=dialog]').innerText")
        assert {"Base URL", "User name", "Password"} <= set(labels.splitlines())
        page.click("[id$='trigger:Extra Fields']")
        page.wait_for("document.querySelector('[role=dialog]').innerText.includes('Client secret')")
        labels = page.evaluate("document.querySelector('[role=dialog]').innerText")
        assert {each["label"] for each in CONNECTION_FIELDS.values()} <= set(labels.splitlines())
        for name in ("token_url", "client_id", "client_secret"):
            fill(page, **{f"element_{name}": wanted["extra"][name]})
        hidden = "[...document.querySelectorAll('[type=password]')].map(each => each.name)"
        assert page.evaluate(hidden) == ["password", "element_client_secret"]
        press(page, "Save")
        page.wait_for(f"!document.querySelector('[role=dialog]') && !!{ROW}")
        try_it(page)

        page.click(button(page, "Edit Connection"))
        page.wait_for("!!document.querySelector('[name=element_client_secret]')")
        values = "[...document.querySelectorAll('[type=password]')].map(each => each.value)"
        assert page.evaluate(values) == ["***", "***"]
        fill(page, description="Edited")
        press(page, "Save")
        page.wait_for(f"!document.querySelector('[role=dialog]') && {ROW}.innerText.includes('Edited')")
        try_it(page)  # what was not shown is still there


def button(page: Page, label: str) -> str:
    """Find a button in the row of the connection, which is not the only one."""
    page.wait_for(f"!!{ROW}")
    number = page.evaluate(f"[...{ROW}.parentNode.children].indexOf({ROW})") + 1
    return f"tbody tr:nth-child({number}) [aria-label='{label}']"


def try_it(page: Page) -> None:
    """Press the button that tests the connection, and see it turn green."""
    page.reload()
    test = button(page, "Test Connection")
    color = f"document.querySelector(`{test} svg`).style.color"
    page.wait_for(f"!!document.querySelector(`{test} svg`) && !['green', 'red'].includes({color})")
    page.click(test)
    page.wait_for(f"['green', 'red'].includes({color})")
    assert page.evaluate(color) == "green", page.evaluate("document.body.innerText")


@contextmanager
def details_of(run: Run, task: str, profile: Path) -> Iterator[Page]:
    url = f"{run.deployment.url}/dags/{run.dag_id}/runs/{run.run_id}/tasks/{task}/details"
    with open_page(url, profile, (1280, 900)) as page:
        yield page


def follow(page: Page, name: str) -> str:
    """Click on a link that opens a page of its own; return that page's address."""
    link = f"[...document.querySelectorAll('a')].find(each => each.innerText.includes('{name}'))"
    page.wait_for(f"!!{link}")
    target = str(page.evaluate(f"{link}.href"))
    click_on(page, link)
    page.wait_for_tab(target)
    return target


def test_a_task_links_to_its_job_at_the_service(deployment: Deployment, stage: Stage, tmp_path: Path) -> None:
    stage.service.configure(jobs="instant")
    run = deployment.trigger("compliance_submit_and_wait", url=next(iter(stage.pages)))
    assert run.wait_for_end()["state"] == "success"
    with details_of(run, "submit_file", tmp_path / "chromium") as page:
        address = follow(page, "View job")
    assert address == f"{stage.service.url}/?job={run.returned('submit_file')}"


def test_an_ingest_links_to_its_report(deployment: Deployment, stage: Stage, tmp_path: Path) -> None:
    run = deployment.runs("compliance_nightly_ingestion")[0]
    assert run.wait_for_end()["state"] == "success"
    with details_of(run, "ingest/mapped/0", tmp_path / "chromium") as page:
        address = follow(page, "View report")
    assert address.startswith(stage.texts_at)
    counts = run.returned("ingest", 0)
    documents = counts["completed"] + counts["failed"] + counts["skipped"]
    with open_page(address, tmp_path / "report", (1280, 900)) as page:
        page.wait_for("document.querySelectorAll('svg').length > 0")
        assert f"Of {documents} documents" in page.evaluate("document.body.innerText")
