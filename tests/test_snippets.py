"""Code in the documentation runs as it is written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow import __version__ as airflow_version
from packaging.version import Version

from airflow_provider.emulator import Emulator
from tests.support.attempts import Attempts

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
IS_AIRFLOW_3 = Version(airflow_version) >= Version("3.0")
AIRFLOW_2 = ("from airflow.sdk import", "from airflow.decorators import")  # as the page says


def environment(**more: str) -> dict[str, str]:
    """Return an environment with this copy of the provider, and without an Airflow configuration."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTEST"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    return {**own, "PATH": path, "PYTHONPATH": str(ROOT), **more}


def run(command: list[str], folder: Path, env: dict[str, str]) -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert not done.returncode, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout + done.stderr


@pytest.mark.command
@pytest.mark.once
def test_the_project_of_the_page_on_testing_passes_its_own_tests(tmp_path: Path) -> None:
    text = (DOCS / "testing.md").read_text()
    files = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(files) == 4
    for name, source in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source if IS_AIRFLOW_3 else source.replace(*AIRFLOW_2))

    said = run([sys.executable, "-m", "pytest", "-q", "-p", "no:anyio"], tmp_path, environment())

    assert "4 passed" in said


@pytest.mark.command
@pytest.mark.once
def test_the_night_of_the_readme_runs_as_printed(compliance_service: Emulator, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text().partition("## The night\n")[2].partition("\n## ")[0]
    prepare, show = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (file,) = re.findall(r"^Save this as `(.*)` in `\$AIRFLOW_HOME/dags`:$", text, re.MULTILINE)
    (source,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    connection = compliance_service.connection_json
    env = environment(
        HOME=str(tmp_path),
        VIRTUAL_ENV=str(tmp_path),
        AIRFLOW_CONN_COMPLIANCE_DEFAULT=connection,
        NO_PROXY="*",
    )
    bash = ["bash", "-euo", "pipefail", "-c"]
    show = "".join(re.findall(r"^export .*\n", prepare, re.MULTILINE)) + show  # as in the same terminal

    run([*bash, prepare], tmp_path, env)
    (tmp_path / "airflow/dags" / file).write_text(source)
    first = run([*bash, show], tmp_path, env)
    jobs = len(compliance_service.jobs())
    second = run([*bash, show], tmp_path, env)

    folder = tmp_path / "compliance"
    documents = [path for path in (folder / "documents").iterdir() if path.suffix != ".html"]
    assert len(list(folder.glob("nights/dt=*/*/*.txt"))) == len(documents) == jobs
    listed = re.compile(rf"^{re.escape(str(folder))}.*/_night/report-", re.MULTILINE)
    assert [len(listed.findall(said)) for said in (first, second)] == [1, 2]
    assert len(compliance_service.jobs()) == jobs  # the second night submits nothing


def test_a_custom_operator_defers_to_the_trigger(compliance_service: Emulator, attempts: Attempts) -> None:
    text = (DOCS / "dag.md").read_text().partition("### Defer to a trigger\n")[2]
    (source,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "custom_operator"}
    exec(compile(source, "dag.md", "exec"), names)

    result = attempts.run(names["SubmitPagesOperator"](task_id="pages", urls=["http://127.0.0.1:9/none"]))

    (job,) = compliance_service.jobs()
    assert result == {job["uuid"]: "FAILED"}
    assert attempts.deferrals
