"""What `make dist` has made, and an environment that has nothing but the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILDER = ROOT / ".venv-release" / "bin" / "python"
TIMEOUT_SECONDS = 300.0  # seconds for a command on a slow machine


@pytest.fixture(scope="session")
def wheel() -> Path:
    return _made("*.whl")


@pytest.fixture(scope="session")
def sdist() -> Path:
    return _made("*.tar.gz")


def _made(pattern: str) -> Path:
    found = list((ROOT / "dist").glob(pattern))
    assert len(found) == 1, f"dist/ has {len(found)} files {pattern}: run `make dist-test`."
    return found[0]


@dataclass(frozen=True)
class Elsewhere:
    """An environment and a folder that know nothing of the checkout."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "venv" / "bin"

    def run(self, *command: str | Path, timeout: float = TIMEOUT_SECONDS, **variables: str) -> str:
        """Run one of its programs to a good end; return what it said."""
        environment = clean_environment({"AIRFLOW_HOME": str(self.folder / "airflow"), **variables})
        return said_by([self.bin / command[0], *command[1:]], self.folder, environment, timeout)


@pytest.fixture(scope="session")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    """Install the wheel with pinned dependencies, and lay the nightly job and the demo beside it."""
    it = Elsewhere(tmp_path_factory.mktemp("elsewhere"))
    uv = Path(sys.executable).with_name("uv")
    pins = ROOT / "constraints" / f"airflow-3.3-py{sys.version_info.major}.{sys.version_info.minor}.txt"
    said_by([uv, "venv", "--python", sys.executable, it.bin.parent], it.folder)
    wanted = f"airflow-provider-compliance[amazon,emulator] @ {wheel.as_uri()}"
    said_by([uv, "pip", "install", "--python", it.bin / "python", "--constraint", pins, wanted], it.folder)
    said_by([uv, "pip", "check", "--python", it.bin / "python"], it.folder)
    shutil.copytree(ROOT / "demo", it.folder / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    (it.folder / "example_dags").mkdir()
    shutil.copy(ROOT / "example_dags" / "nightly_compliance.py", it.folder / "example_dags")
    return it


def clean_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without what leads to its Airflow and its modules."""
    strange = ("AIRFLOW", "COMPLIANCE", "PYTHON", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    return {**inherited, **more}


def said_by(
    command: list[str | Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> str:
    """Run a command to a good end; return what it wrote to stdout."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert not done.returncode, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
