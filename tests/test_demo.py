"""`make demo` succeeds only if every document has the expected result."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow import __version__ as airflow_version
from packaging.version import Version

from demo.outcome import Outcome, check_results
from demo.stage import ROOT, Amounts, Expected, staged
from demo.verdicts import Night, check_verdicts
from tests.support.examples import EXAMPLES, NEEDED

TIMEOUT_SECONDS = 1200
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
        timeout=TIMEOUT_SECONDS,
    )
    return done.returncode, done.stdout


@pytest.mark.command
def test_every_document_comes_to_the_end_that_it_should(tmp_path: Path) -> None:
    code, said = run_demo(tmp_path, FEW)

    assert code == 0, said
    first, second = (table_in(part, 20) for part in re.split(r"^dt=.*$", said, flags=re.MULTILINE)[1:])
    assert first["PDF"][:4] == ["8", "8", "0", "0"]
    assert first["DOCX"][:4] == ["4", "4", "0", "0"]
    assert first["web pages"][:4] == ["4", "4", "0", "0"]
    assert first["broken on purpose"][:4] == ["1", "0", "0", "1"]
    assert first["all"][:4] == ["17", "16", "0", "1"]
    assert second["all"][:4] == ["18", "2", "15", "1"]
    verdicts = table_in(said, 22)
    assert verdicts["cells"] == ["32", "34"]
    assert verdicts["new document"] == ["32", "2"]
    assert verdicts["changed document"] == ["0", "2"]
    assert verdicts["changed framework"] == ["0", "15"]
    assert verdicts["carried forward"] == ["0", "15"]
    assert verdicts["findings"] == ["192", "204"]
    assert "returned HTTP 404" in said
    assert "everything is as recorded." in said
    happened, proven, where, what_next = said.splitlines()[-4:]
    assert re.fullmatch(
        r"What happened  Two nights in \d+ s\. Success: all 33 texts match their documents,", happened
    )
    assert proven.strip() == "all 396 verdicts the rule, all evidence its hashes."
    report = where.removeprefix("Where to look  ").split()[0]
    assert "</html>" in (ROOT / report).read_text()
    assert "make ui" in what_next


def table_in(said: str, width: int) -> dict[str, list[str]]:
    """Return the numbers of a table by the names of its rows."""
    return {line[:width].strip(): line[width:].split() for line in said.splitlines()}


@pytest.mark.command
@pytest.mark.once
def test_a_run_that_fails_is_not_well(tmp_path: Path) -> None:
    code, said = run_demo(tmp_path, BROKEN)

    assert code == 1, said
    assert "4 of 8 documents failed, more than max_failed=0.1 allows" in said
    assert re.search(
        r"^Problems:\n  There are not two nights\.\n  The run of dt=\S+ failed\.$", said, re.MULTILINE
    )
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


class TwoNights:
    """Two nights of one document and one framework, as runs leave them; the framework has changed."""

    def __init__(self, folder: Path) -> None:
        texts = [Expected("a", "pdf", "An exit plan with a transition period.")]
        criterion = {"codeName": "D-1", "name": "Exit", "keywords": ["exit", "transition"]}
        stricter = {**criterion, "description": "Stricter.", "keywords": ["exit", "migration", "rehearsal"]}
        first, second = (
            [{"id": 1, "codeName": "DORA", "name": "DORA", "criteria": [each]}]
            for each in (criterion, stricter)
        )
        self.last = Night(folder / "dt=1", texts, first)
        self.night = Night(folder / "dt=2", texts, second)
        self.folder = folder / "dt=2" / "_assess" / "dag" / "run" / "assess"
        self.folder.mkdir(parents=True)
        (category, rationale) = dict(self.night.decide())["a", "DORA", "D-1"]
        self.row = {"source": "a", "framework": "DORA", "status": "COMPLETED", "error": None}
        self.finding = {"source": "a", "framework": "DORA", "criterion": "D-1", "category": category}
        self.finding |= {"rationale": rationale, "changed_from": "SUFFICIENTLY_REGULATED"}
        self.write()
        (self.folder / "report.html").write_text("<html></html>")

    def write(self, row: Any = (), finding: Any = ()) -> None:
        """Write the tables, with changes."""
        rows = {"assessments": {"carried_from": None, **self.row, **dict(row)}}
        rows["findings"] = {**self.finding, **dict(finding)}
        for name, each in rows.items():
            content = (json.dumps(each) + "\n").encode()
            (self.folder / f"{name}.jsonl").write_bytes(content)
            (self.folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(content))

    def problems(self) -> str:
        return "\n".join(check_verdicts(self.night, self.last).problems)


@pytest.fixture
def two_nights(tmp_path: Path) -> TwoNights:
    return TwoNights(tmp_path)


def test_verdicts_as_the_rule_wants_them_are_no_problem(two_nights: TwoNights) -> None:
    checked = check_verdicts(two_nights.night, two_nights.last)

    assert checked.problems == []
    assert (checked.counts["new framework"], checked.counts["changed"]) == (1, 1)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda it: it.write(finding={"category": "MISSING"}), "it is MISSING, but the rule says NOT_"),
        (lambda it: it.write(finding={"rationale": "?"}), "but the rule says"),
        (
            lambda it: it.write(finding={"changed_from": None}),
            "changed from SUFFICIENTLY_REGULATED, not",
        ),
        (lambda it: it.write(finding={"criterion": "D-2"}), "was not asked for"),
        (lambda it: it.write(row={"carried_from": {"run": "r"}}), "it had to be assessed again"),
        (lambda it: it.write(row={"status": "FAILED", "error": "why"}), "it is FAILED: why"),
        (lambda it: it.write(row={"source": "b"}), "its verdict on DORA is missing"),
        (lambda it: it.folder.joinpath("assessments.jsonl").unlink(), "0 tables of assessments"),
        (lambda it: it.folder.joinpath("report.html").write_text("<html>"), "report is missing"),
    ],
)
def test_a_wrong_verdict_is_found(
    two_nights: TwoNights, damage: Callable[[TwoNights], object], problem: str
) -> None:
    damage(two_nights)

    assert problem in two_nights.problems()


def test_an_unchanged_cell_must_be_carried_forward(two_nights: TwoNights) -> None:
    two_nights.last = two_nights.night
    two_nights.write(finding={"changed_from": None})

    assert "it had to be carried forward" in two_nights.problems()


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
    values = [names["made"].params.dump(), *(names.get(each) for each in ("PAGES", "SOURCES", "NIGHTS"))]
    return set(re.findall(r"\w+://[^\s'\"]+", str(values)))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_uses_the_emulator_and_local_folders_in_the_user_interface(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path / "stage", Amounts(2, 1, 2, 0), "instant") as stage:
        for name, value in stage.settings("http://127.0.0.1:9/", "http://127.0.0.1:9/").items():
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
