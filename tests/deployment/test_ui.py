"""`make ui`: the example DAGs in a whole Airflow, for this machine only."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import psutil
import pytest
import requests

from demo.stage import INGESTION, NIGHTLY, ROOT
from demo.ui import REVIEW
from tests.deployment.processes import processes_in
from tests.deployment.servers import free_port

TIMEOUT_SECONDS = 1200


@pytest.mark.deployment
def test_the_user_interface_runs_last_night_s_job_on_loopback_and_ends(tmp_path: Path) -> None:
    folder, port = tmp_path / "ui", free_port()
    command = [sys.executable, "-m", "demo.ui", f"--folder={folder}", f"--port={port}"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ui:
        try:
            assert ui.stdout is not None
            lines = list(takewhile(lambda line: line != "Ctrl-C ends everything.\n", ui.stdout))
            shown = [line.split()[-1] for line in lines if "/dags/" in line]
            wanted = (NIGHTLY, REVIEW, INGESTION)
            assert shown == [f"http://127.0.0.1:{port}/dags/{dag_id}" for dag_id in wanted]
            parts = [ui.pid, *processes_in(folder)]
            assert len(parts) > 4
            assert listening(parts) == {"127.0.0.1"}
            wait_for_success(f"http://127.0.0.1:{port}")
            ui.send_signal(signal.SIGINT)
            said, _ = ui.communicate(timeout=TIMEOUT_SECONDS)
        except BaseException:
            ui.terminate()
            sys.stdout.write(ui.communicate()[0])  # which component of Airflow has exited, and why
            raise

    assert ui.returncode == 0
    assert said.strip() == "Stopped."
    assert not processes_in(folder)


def listening(pids: list[int]) -> set[str]:
    found: set[str] = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):  # a task of the DAG may have ended meanwhile
            connections = psutil.Process(pid).net_connections("tcp")
            found |= {
                connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN
            }
    return found


def wait_for_success(url: str) -> None:
    token = requests.get(f"{url}/auth/token", timeout=TIMEOUT_SECONDS).json()["access_token"]
    until, state = time.monotonic() + TIMEOUT_SECONDS, None
    while state != "success":
        assert time.monotonic() < until, state
        time.sleep(0.5)
        runs = requests.get(
            f"{url}/api/v2/dags/{NIGHTLY}/dagRuns",
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT_SECONDS,
        ).json()["dag_runs"]
        state = runs[0]["state"] if runs else None
        assert state != "failed"
