"""`make demo` succeeds only if every document has the expected result."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from airflow import __version__ as airflow_version
from packaging.version import Version

from demo.outcome import Outcome, check_results
from demo.stage import ROOT, Amounts, Expected, staged
from tests.support.examples import EXAMPLES, NEEDED

PATIENCE = 240
FEW = {"pdfs": 8, "docx": 4, "pages": 4, "broken": 1}
BROKEN = {"pdfs": 2, "docx": 1, "pages": 1, "broken": 4}


def run_demo(folder: Path, amounts: dict[str, int]) -> tuple[int, str]:
    """Run it; return its exit code and what it said."""
    options = [f"--{kind}={number}" for kind, number in amounts.items()]
    done = subprocess.run(
        [sys.executable, "-m", "demo", f"--folder={folder / 'demo'}", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout


def test_every_document_comes_to_the_end_that_it_should(tmp_path: Path) -> None:
    code, said = run_demo(tmp_path, FEW)

    assert code == 0, said
    rows = {line[:20].strip(): line[20:].split()[:3] for line in said.splitlines() if " kB" in line}
    assert rows["PDF"] == ["8", "8", "0"]
    assert rows["DOCX"] == ["4", "4", "0"]
    assert rows["web pages"] == ["4", "4", "0"]
    assert rows["broken on purpose"] == ["1", "0", "1"]
    assert rows["all"] == ["17", "16", "1"]
    assert "returned HTTP 404" in said
    assert "logins: 1." in said
    assert "Success: all 16 texts match their documents." in said
    assert said.rstrip().endswith("make ui")


@pytest.mark.once
def test_a_run_that_fails_is_not_well(tmp_path: Path) -> None:
    code, said = run_demo(tmp_path, BROKEN)

    assert code == 1, said
    assert "4 of 8 documents failed, more than max_failed=0.1 allows" in said
    assert "Problems:\n  The run failed.\n" in said
    assert "Success" not in said


class Result:
    """A destination with one text, as a run leaves it."""

    def __init__(self, texts: Path) -> None:
        self.texts = texts
        self.text = texts / "a.txt"
        self.folder = texts / "_ingest" / "shard"
        self.folder.mkdir(parents=True)
        self.text.write_text("whole")
        digest = hashlib.sha256(b"whole").hexdigest()
        path = f"file://{self.text}"
        self.row = {
            "source": "a",
            "status": "COMPLETED",
            "error": None,
            "path": path,
            "bytes": 5,
            "sha256": digest,
        }
        self.row |= {"submitted_at": "2026-01-01T02:00:00+00:00", "completed_at": "2026-01-01T02:00:09+00:00"}
        self.write()
        (self.folder / "report.html").write_text("<html></html>")

    def write(self, **changes: object) -> None:
        """Write the manifest."""
        (self.folder / "manifest.jsonl").write_text(json.dumps(self.row | changes) + "\n")

    def look(self, text: str | None = "whole") -> Outcome:
        return check_results(self.texts, [Expected("a", "pdf", text)])


@pytest.fixture
def result(tmp_path: Path) -> Result:
    return Result(tmp_path)


def test_a_whole_text_is_no_problem(result: Result) -> None:
    outcome = result.look()

    assert outcome.problems == []
    assert outcome.seconds == 9.0


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda it: it.text.write_text("who"), "differs from the document"),
        (lambda it: it.text.unlink(), "differs from the document"),
        (lambda it: it.write(bytes=4), "size or hash"),
        (lambda it: it.write(sha256="0"), "size or hash"),
        (lambda it: it.write(status="FAILED", error="why"), "it is FAILED: why"),
        (lambda it: it.write(source="b"), "not among the sources"),
        (lambda it: it.folder.joinpath("manifest.jsonl").unlink(), "missing in all manifests"),
        (lambda it: it.texts.joinpath("b.txt").touch(), "in no manifest"),
        (lambda it: it.folder.joinpath("report.html").write_text("<html>"), "report is missing"),
    ],
)
def test_what_is_wrong_is_found(result: Result, damage: Callable[[Result], object], problem: str) -> None:
    damage(result)

    assert problem in "\n".join(result.look().problems)


def test_a_text_of_a_document_that_cannot_be_read_is_wrong(result: Result) -> None:
    assert "it can't be read, but is COMPLETED" in "\n".join(result.look(text=None).problems)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    with pytest.raises(SystemExit, match="is not empty"), staged(tmp_path, Amounts(), "instant"):
        pass

    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def places_of(example: Path) -> set[str]:
    """Return all URLs and URIs that an example DAG works with."""
    if Version(airflow_version) < Version(needed := NEEDED.get(example.stem, "2.11")):
        pytest.skip(f"needs Airflow {needed}")
    names = runpy.run_path(str(example))
    values = [names["made"].params.dump(), names.get("PAGES")]
    return set(re.findall(r"\w+://[^\s'\"]+", str(values)))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_uses_the_emulator_and_local_folders_in_the_user_interface(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path / "stage", Amounts(2, 1, 2, 0), "instant") as stage:
        for name, value in stage.settings("http://127.0.0.1:9/").items():
            if name.startswith("COMPLIANCE"):
                monkeypatch.setenv(name, value)
        places = places_of(example)

    here = (f"file://{tmp_path}/stage", "http://127.0.0.1:")
    assert [uri for uri in places if not uri.startswith(here)] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_no_example_uses_a_cloud_unless_told_to(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")

    places = places_of(example)

    default = ("file:///home/somebody/compliance", "https://example.com/")
    assert [uri for uri in places if not uri.startswith(default)] == []
