"""The pages inside Airflow, on a real API server, in a browser, for users who sign in.

What they show, hostile paths and stores that hang are tested in `tests/pages`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from airflow_provider.emulator.samples import make_docx
from airflow_provider.storage.names import digest
from tests.deployment.conftest import RecordingEmulator
from tests.deployment.processes import Part
from tests.deployment.servers import free_port
from tests.deployment.system import TIMEOUT_SECONDS, Deployment, Run, command
from tests.pages.test_app import Place
from tests.support.browser import CONTRAST, Page, find_chromium, open_page

pytestmark = [pytest.mark.deployment, pytest.mark.browser]

HOSTILE = "\"><img src=x onerror=alert(1)> 'Ünïcode' & 100% ‮gnp.exe"
MANY = 10_000
USERS = {"reader": "viewer", "stranger": ""}  # a user without a role may read no DAG
PASSWORD = "pages-4Tz8"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LINKS = "[...document.querySelectorAll('main a')].map(link => link.getAttribute('href'))"


class Server:
    """A second API server, where users sign in; it has more roots."""

    def __init__(self, deployment: Deployment, roots: list[str]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        passwords = deployment.home / "passwords.json"
        passwords.write_text(json.dumps(dict.fromkeys(USERS, PASSWORD)))
        down = {"conn_type": "aws", "extra": {"endpoint_url": f"http://127.0.0.1:{free_port()}"}}
        settings = {
            "AIRFLOW_CONN_DOWN": json.dumps({**down, "login": "key", "password": "secret"}),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__COMPLIANCE__ROOTS": json.dumps(roots),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(map(":".join, USERS.items())),
        }
        arguments = command("api-server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1")
        environment = {**deployment.environment, **settings}
        self.part = Part(arguments, environment, deployment.home / "pages.out", cwd=deployment.home)

    def is_up(self) -> bool:
        try:
            return requests.get(f"{self.url}/api/v2/monitor/health", timeout=10).ok
        except requests.RequestException:
            return False

    def token(self, user: str) -> str:
        body = {"username": user, "password": PASSWORD}
        answer = requests.post(f"{self.url}/auth/token", json=body, timeout=TIMEOUT_SECONDS)
        return str(answer.json()["access_token"])

    def get(self, path: str, user: str = "reader") -> requests.Response:
        cookies = {"_token": self.token(user)} if user else {}
        return requests.get(f"{self.url}/compliance{path}", cookies=cookies, timeout=TIMEOUT_SECONDS)

    @contextmanager
    def browser(self, profile: Path) -> Iterator[Page]:
        """A browser in which a user has signed in, by the form."""
        with open_page(f"{self.url}/auth/login", profile) as page:
            page.wait_for("document.querySelectorAll('input').length >= 2")
            for field, value in (("username", "reader"), ("password", PASSWORD)):
                page.wait_for(f"document.querySelector('[name={field}]')?.focus() === undefined")
                page.type(value)
            page.press_enter()
            page.wait_for("!location.pathname.includes('login')")
            yield page


@pytest.fixture(scope="module")
def night(
    deployment: Deployment, stand_in: RecordingEmulator, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """A night with a document of a hostile name."""
    stand_in.reset()
    stand_in.configure(jobs="instant")
    folder = tmp_path_factory.mktemp("pages")
    (folder / "in").mkdir()
    for name in ("contract", HOSTILE):
        (folder / "in" / f"{name}.docx").write_bytes(make_docx("Contract.", "An exit plan."))
    run = deployment.trigger("night", sources=f"{folder}/in/", nights=f"file://{folder}/nights/")
    assert run.wait_for_end()["state"] == "success"
    return run


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A root with many documents."""
    place = Place(tmp_path_factory.mktemp("many"))
    rows = [{"source": f"s3://in/{number}.pdf", "status": "COMPLETED"} for number in range(MANY)]
    place.publish("ingest", "2026-03-01", "manifest", rows, dag_id="night")
    place.close("2026-03-01T00:00:00+00:00", dag_id="night")
    return place


@pytest.fixture(scope="module")
def server(deployment: Deployment, night: Run, many: Place) -> Iterator[Server]:
    made = Server(deployment, [many.root, "s3://down@bucket/nights/"])
    try:
        deployment.wait_for(made.is_up, "the second API server")
        yield made
    finally:
        made.part.end()


def root_id_of(night: Run) -> str:
    return digest(night.returned("night.close")["night"].partition("_evidence/nights/")[0])


def test_only_those_who_may_read_the_dag_get_a_page(server: Server, night: Run) -> None:
    root_id = root_id_of(night)
    run = f"{quote(night.run_id, safe='')}"
    expected = {  # without a session, without a role, with one
        "/": (401, 200, 200),
        f"/nights/{root_id}/1": (401, 404, 200),
        f"/reports/night/{run}/night.close/-1": (401, 403, 200),
        f"/runs/night/{run}": (401, 403, 200),
        f"/documents/{root_id}?text=CONTRACT": (401, 404, 200),
    }
    pages = {path: [server.get(path, user) for user in ("", "stranger", "reader")] for path in expected}
    assert {path: tuple(page.status_code for page in found) for path, found in pages.items()} == expected
    hidden = [page.text for found in pages.values() for page in found[:2]]
    assert not [text for text in hidden if "contract" in text or "down@bucket" in text]


def test_pages_are_found_by_clicks_and_readable_on_a_phone_and_in_the_dark(
    server: Server, night: Run, many: Place, tmp_path: Path
) -> None:
    find_chromium()
    with server.browser(tmp_path / "chromium") as page:
        shown = {"list": f"{server.url}/compliance/"}
        page.open(shown["list"])
        assert "down@bucket" in page.evaluate("document.body.innerText")
        links = page.evaluate(LINKS)
        assert f"/compliance/nights/{many.id}/1" in links
        shown["search"] = f"{server.url}/compliance/documents/{many.id}?text=pdf"
        shown["report"] = f"{server.url}/compliance/nights/{root_id_of(night)}/1"
        page.open(f"{server.url}/compliance/documents/{root_id_of(night)}?text=gnp")
        (document,) = (link for link in page.evaluate(LINKS) if "/document/" in link)
        shown["document"] = f"{server.url}{document}"
        for name, url in shown.items():
            page.open(url)
            assert page.evaluate("document.images.length") == 0
            for width, scheme in ((400, "light"), (1280, "dark")):
                page.screenshot(tmp_path / f"{name}-{width}-{scheme}.png", width, scheme=scheme)
                assert page.evaluate_on_screen(OVERFLOW, width=width, scheme=scheme) <= 0, name
                assert page.evaluate_on_screen(CONTRAST, width=width, scheme=scheme) >= 4.5, name
