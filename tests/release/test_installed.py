"""The wheel alone, in an environment that does not see the checkout, does the nightly job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider import __version__
from tests.release.conftest import ROOT, TIMEOUT_SECONDS, Elsewhere

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
    assert not [entry for entry in path if Path(entry).is_relative_to(ROOT)]


def test_the_emulator_is_a_command(elsewhere: Elsewhere) -> None:
    assert "usage: compliance-emulator" in elsewhere.run("compliance-emulator", "--help")


def test_airflow_knows_the_provider(elsewhere: Elsewhere) -> None:
    said = elsewhere.run("airflow", "providers", "get", "airflow-provider-compliance", "--output", "json")

    (about,) = json.loads(said[said.index("[") :])
    assert about["Provider"] == "airflow-provider-compliance"
    assert about["Version"] == __version__


EXAMPLES = """
import json, sys
sys.stderr = sys.stdout  # whatever is logged is part of what is said
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag
bundle = DagBundlesManager().get_bundle("airflow-provider-compliance-example-dags")
bag = DagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
print("\\n" + json.dumps([sorted(bag.dags), bag.import_errors]))
"""


def test_airflow_offers_the_examples(elsewhere: Elsewhere) -> None:
    """With `load_examples`, and without a line about a module that it can't import."""
    said = elsewhere.run("python", "-c", EXAMPLES, AIRFLOW__CORE__LOAD_EXAMPLES="True")
    dags, errors = json.loads(said.splitlines()[-1])
    assert len(dags) == len(list((ROOT / "example_dags").glob("*.py"))) == 11
    assert not errors
    assert "Could not load provider module airflow_provider_compliance" not in said


def test_the_nightly_job_succeeds(elsewhere: Elsewhere) -> None:
    amounts = ("--pdfs=4", "--docx=3", "--pages=3", "--broken=0")
    said = elsewhere.run("python", "-m", "demo", "--folder=night", *amounts, timeout=3 * TIMEOUT_SECONDS)

    assert "Success: all 21 texts match their documents" in said
    assert "all 252 verdicts the rule, all evidence its hashes." in said
