"""The pages inside Airflow, on a real API server."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from airflow_provider.emulator.samples import make_docx
from airflow_provider.storage.names import digest
from tests.deployment.conftest import Service
from tests.deployment.system import Deployment

pytestmark = pytest.mark.deployment


def test_night_of_one_call_and_its_pages(deployment: Deployment, service: Service, tmp_path: Path) -> None:
    service.configure(jobs="instant")
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        (folder / f"contract-{number}.docx").write_bytes(make_docx(f"Contract {number}", "An exit plan."))
    conf = {"sources": f"{folder}/", "nights": f"file://{tmp_path}/nights/"}
    run = deployment.trigger("one_call", **conf)
    assert run.wait_for_end()["state"] == "success"
    closed = run.returned("night.close")
    assert (closed["documents"], closed["completed"], closed["missing"]) == (3, 3, 0)

    def get(path: str, **query: str) -> requests.Response:
        return deployment._rest.get(f"{deployment.url}/compliance{path}", params=query, timeout=60)

    listed = get("/")
    assert listed.status_code == 200
    root_id = digest(conf["nights"])
    (night,) = re.findall(rf'href="(/compliance/nights/{root_id}/1)"', listed.text)
    report = get(night.removeprefix("/compliance"))
    assert report.status_code == 200, report.text
    assert "sandbox" in report.headers["Content-Security-Policy"]
    assert get(f"/reports/one_call/{quote(run.run_id)}/night.close/-1").text == report.text
    found = get(f"/documents/{root_id}", text="CONTRACT-1")
    (document,) = re.findall(r'href="/compliance(/document/[^"]+)"', found.text)
    shown = get(document)
    assert "<td>missing" in shown.text
