"""The wheel alone, in an environment that does not see the checkout, does the nightly job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider import __version__
from tests.release.conftest import PATIENCE, ROOT, Elsewhere

pytestmark = pytest.mark.release

WHENCE = """
import json, sys, airflow_provider, demo
print(json.dumps([airflow_provider.__file__, demo.__file__, sys.path]))
"""


def test_all_comes_from_there(elsewhere: Elsewhere) -> None:
    provider, demo, path = json.loads(elsewhere.run("python", "-c", WHENCE))

    assert Path(provider).parent.parent.name == "site-packages"
    assert Path(provider).is_relative_to(elsewhere.bin.parent)
    assert Path(demo).is_relative_to(elsewhere.folder)
    assert not [each for each in path if Path(each).is_relative_to(ROOT)]


def test_the_emulator_is_a_command(elsewhere: Elsewhere) -> None:
    assert "usage: compliance-emulator" in elsewhere.run("compliance-emulator", "--help")


def test_airflow_knows_the_provider(elsewhere: Elsewhere) -> None:
    said = elsewhere.run("airflow", "providers", "get", "airflow-provider-compliance", "--output", "json")

    (about,) = json.loads(said[said.index("[") :])
    assert about["Provider"] == "airflow-provider-compliance"
    assert about["Version"] == __version__


def test_the_nightly_job_succeeds(elsewhere: Elsewhere) -> None:
    amounts = ("--pdfs=4", "--docx=3", "--pages=3", "--broken=0")
    said = elsewhere.run("python", "-m", "demo", "--folder=night", *amounts, patience=3 * PATIENCE)

    assert "All is well: 10 texts are there, each compared with its document." in said
