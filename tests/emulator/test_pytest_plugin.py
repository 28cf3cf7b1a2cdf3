from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import requests

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider.emulator import Emulator


def test_the_fixture_gives_a_running_emulator_and_the_connection(compliance_service: Emulator) -> None:
    connection = json.loads(os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"])

    assert connection == compliance_service.connection()
    assert requests.get(connection["host"], timeout=30).ok


@pytest.mark.compliance_service(jobs="polls:5", max_batch=3)
class TestInAClass:
    @pytest.mark.compliance_service(jobs="polls:1")
    def test_the_nearest_marker_wins(self, compliance_service: Emulator) -> None:
        settings = compliance_service.settings()

        assert (settings["jobs"], settings["max_batch"]) == ("polls:1", 3)


def run_pytest(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:anyio", "--strict-markers"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_an_installed_package_brings_the_fixture_to_any_test_suite(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import os, pytest

@pytest.mark.compliance_service(jobs="instant")
def test_with(compliance_service):
    compliance_service.fail_jobs("No.")
    assert compliance_service.url in os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"]

def test_without():
    assert "AIRFLOW_CONN_COMPLIANCE_DEFAULT" not in os.environ
""",
    )

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_test_suite_that_uses_no_emulator_loads_next_to_nothing_of_it(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import sys

def test_it():
    assert not {"aiohttp", "pypdfium2", "selectolax"} & set(sys.modules)
    package = "airflow_provider"
    ours = {name.removeprefix(package) for name in sys.modules if name.startswith(package)}
    assert ours == {"", ".emulator", ".emulator.pytest_plugin"}
""",
    )

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_without_the_extra_the_fixture_says_what_to_install(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import sys
sys.modules["selectolax"] = None

def test_it(compliance_service):
    pass
""",
    )

    assert "'airflow-provider-compliance[emulator]'" in done.stdout
    assert "1 error" in done.stdout
