from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.jsonl import to_lines
from tests.cli.conftest import Call, Printed
from tests.support.jobs import completed
from tests.support.night_attempts import night_attempts


@pytest.fixture
def service(emulated_service: Emulator) -> Emulator:
    return emulated_service


def write_manifest(folder: Path, shard: int, *statuses: str, **more: Any) -> Path:
    folder = folder / f"_ingest/d/r/t-{shard}-abc"
    folder.mkdir(parents=True)
    rows = [
        {
            "source": f"file:///in/{shard}-{number}.pdf",
            "status": status,
            "error": "Damaged." if status == "FAILED" else None,
            "bytes": 100,
            "submitted_at": f"2026-01-01T0{shard}:00:00+00:00",
            "completed_at": f"2026-01-01T0{shard}:10:00+00:00",
            "dag_id": "nightly",
            "task_id": "ingest",
            "run_id": "run-1",
            "map_index": shard,
            **more,
        }
        for number, status in enumerate(statuses)
    ]
    (folder / "manifest.jsonl").write_bytes(to_lines(rows))
    return folder / "manifest.jsonl"


@pytest.fixture
def report(call: Call, tmp_path: Path) -> Callable[..., Printed]:
    return lambda *arguments: call("report", *arguments, "--output", tmp_path / "report.html")


def test_all_shards_of_a_night_are_one_report(
    report: Callable[..., Printed], call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night = tmp_path / "dt=2026-01-01"
    first = write_manifest(night, 1, "COMPLETED", "FAILED", source="file:///in/a\x1b[2J.pdf")
    second = write_manifest(night, 2, "COMPLETED", "SKIPPED")
    printed = report(first, second, first)
    assert printed.code == 0
    assert printed.out.endswith("report.html: manifests 2, documents 4, completed 2, failed 1, skipped 1.\n")
    page = (tmp_path / "report.html").read_text()
    assert "2 of 4 documents completed" in page
    assert "nightly · ingest" in page
    assert "Took 1 h 10 min" in page
    # The same from the folder of the night, into the folder of the shell.
    monkeypatch.chdir(tmp_path)
    again = call("report", "dt=2026-01-01", "--output", "again.html", "--json")
    assert again.lines == [
        {
            "report": f"file://{tmp_path}/again.html",
            "kind": "ingest",
            "manifests": 2,
            "documents": 4,
            "completed": 2,
            "failed": 1,
            "skipped": 1,
        }
    ]
    assert (tmp_path / "again.html").read_text() == page


def test_nothing_is_overwritten_unless_forced(
    report: Callable[..., Printed], call: Call, tmp_path: Path
) -> None:
    manifest = write_manifest(tmp_path, 1, "COMPLETED")
    (tmp_path / "report.html").write_text("mine")
    refused = report(manifest)
    assert (refused.code, refused.out) == (2, "")
    assert "add --force" in refused.err
    assert (tmp_path / "report.html").read_text() == "mine"
    assert report(manifest, "--force").code == 0
    assert (tmp_path / "report.html").read_text() != "mine"
    evidence = tmp_path / "_evidence/report.html"
    assert call("report", manifest, "--output", evidence, "--force").code == 2
    assert not evidence.exists()
    assert call("report", manifest, "--output", f"{tmp_path}/").code == 2


def test_a_report_never_takes_the_place_of_a_manifest_or_of_evidence(call: Call, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, 1, "COMPLETED")
    content = manifest.read_bytes()
    assert call("report", manifest, "--output", manifest, "--force").code == 2
    assert manifest.read_bytes() == content
    (tmp_path / "_evidence").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "_evidence")
    assert call("report", manifest, "--output", tmp_path / "link/report.html", "--force").code == 2
    assert not list((tmp_path / "_evidence").iterdir())


def test_a_manifest_counts_once_however_it_is_spelled(report: Callable[..., Printed], tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, 1, "COMPLETED")
    (tmp_path / "link").symlink_to(manifest.parent)
    spelled = str(manifest).replace("/_ingest", "//_ingest"), f"file://{tmp_path}/link/manifest.jsonl"
    assert "manifests 1, documents 1" in report(manifest, *spelled).out


DAMAGED = {
    "missing": (None, "does not exist"),
    "cut off": (b'{"source": "a", "status": "COMPLETED"}\n{"source": "b", "sta', "line 2 of"),
    "binary": (b"\x00\xff\xfe", "line 1 of"),
    "no objects": (b"[]\n", "is not an object"),
    "another table": (b'{"key": "a"}\n', "is not a manifest: its row 1 has no source and no status"),
    "a source that is none": (b'{"source": 1, "status": "FAILED"}\n', "has no source"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_manifest_that_is_missing_or_damaged_gives_no_report(
    kind: str, report: Callable[..., Printed], tmp_path: Path
) -> None:
    content, said = DAMAGED[kind]
    good, bad = write_manifest(tmp_path, 1, "COMPLETED"), tmp_path / "bad\x1b.jsonl"
    if content is not None:
        bad.write_bytes(content)
    printed = report(good, bad)
    assert (printed.code, printed.out) == (2, "")
    assert said in printed.err
    assert "\x1b" not in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_an_empty_manifest_is_a_night_with_nothing_to_do(
    report: Callable[..., Printed], tmp_path: Path
) -> None:
    assert report(write_manifest(tmp_path, 1)).code == 0
    assert "Nothing to do" in (tmp_path / "report.html").read_text()


def test_a_folder_without_manifests_is_wrong_use(report: Callable[..., Printed], tmp_path: Path) -> None:
    printed = report(tmp_path)
    assert printed.code == 2
    assert "There is no manifest.jsonl or assessments.jsonl below" in printed.err


def main_of(page: str) -> str:
    """Return what a report says of the documents, without times and places of the run."""
    return re.sub(
        r"<section[^>]*>\s*<h2>Data.*?</section>", "", page[page.index("<main>") :], flags=re.DOTALL
    )


def test_reports_of_a_night_are_made_again_from_what_it_has_left(
    service: Emulator, report: Callable[..., Printed], call: Call, tmp_path: Path
) -> None:
    samples = [str(each.path) for each in write_samples(tmp_path / "in", pdfs=2, docx=0, pages=0, broken=1)]
    texts = {"a.pdf": "An exit plan with a transition period and a migration.", "b.pdf": "Nothing."}
    last: dict[str, Any] = {}
    for night in (1, 2):
        documents = [
            {"uuid": completed(service, text=text), "source": source, "status": "COMPLETED",
             "sha256": hashlib.sha256(text.encode()).hexdigest()}
            for source, text in texts.items()
        ]  # fmt: skip
        destination = f"file://{tmp_path}/out/dt=2026-03-{night:02}/"
        options: dict[str, Any] = {"task_id": "t", "poll_interval": 0.1, "destination": destination}
        last = night_attempts(night).run(ComplianceAssessOperator(documents=documents, **options))
        texts["b.pdf"] = texts["a.pdf"] + " Changed."
        frameworks = service.frameworks()
        del frameworks[0]["criteria"][0]  # its verdicts are gone
        service.set_frameworks(frameworks)
    (lease,) = Path(destination.removeprefix("file://")).glob("_work/assess/*/*/*/lease.json")
    assert json.loads(lease.read_text())["expires_at"] > time.time()
    task = ComplianceIngestOperator(
        task_id="t", sources=samples, destination=destination, poll_interval=0.1, max_failed=1.0
    )
    ingested = night_attempts(2).run(task)

    manifest = Path(ingested["manifest"].removeprefix("file://"))
    assert report(manifest).code == 0
    original = (manifest.parent / "report.html").read_text()
    assert re.findall("<h1>.*</h1>", (tmp_path / "report.html").read_text()) == re.findall(
        "<h1>.*</h1>", original
    )

    findings = Path(last["findings"].removeprefix("file://"))
    printed = report(findings, "--force", "--json")
    assert printed.lines[0]["changed"] == last["changed"] > 0
    assert (printed.lines[0]["assessed"], printed.lines[0]["carried"]) == (last["assessed"], last["carried"])
    made = (tmp_path / "report.html").read_text()
    original = (findings.parent / "report.html").read_text()
    assert last["gone"] > 0
    assert main_of(made) == main_of(original)
    assert "2026-03-01 00:00 UTC" in made  # what it is compared with

    both = report(f"{tmp_path}/out/dt=2026-03-02", "--force")
    assert both.code == 2
    assert "of ingestion and of assessments" in both.err
    # Verdicts without findings would look like a night without problems.
    lines = findings.read_bytes().splitlines(keepends=True)
    findings.write_bytes(lines[0].replace(b'"a.pdf"', b'"other.pdf"') + b"".join(lines[1:]))
    assert "are not of the same task" in report(findings.parent, "--force").err
    findings.write_bytes(b'{"source": "a.pdf"}\n')
    assert "has no criterion and no category" in report(findings.parent, "--force").err
    findings.unlink()
    gone = report(findings.parent, "--force")
    assert (gone.code, "does not exist" in gone.err) == (2, True)
    assert json.loads((findings.parent / "summary.json").read_text())["changed"] == last["changed"]
