"""What documents, texts and folders are called: with any names, nothing is mixed up or lost."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider.emulator import Emulator
from airflow_provider.nights.ingest.documents import Document, text_name
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.links import _configured_link as report_link
from airflow_provider.storage import lineage
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import task_folder
from tests.nights.ingest.conftest import Corpus, Outcome, ingest
from tests.support.attempts import Attempts, TaskInstance, heard


@pytest.fixture
def twins(tmp_path: Path, corpus: Corpus) -> list[str]:
    """Two documents of one name in two folders."""
    paths = [tmp_path / folder / "report.pdf" for folder in ("a", "b")]
    for path, sample in zip(paths, corpus.samples[:2], strict=True):
        path.parent.mkdir()
        path.write_bytes(sample.path.read_bytes())
    return [str(path) for path in paths]


@pytest.mark.parametrize("template", ["{source_stem}.txt", "texts/{source_name}", "all.txt"])
def test_a_template_that_two_documents_could_share_is_refused_before_anything_is_sent(
    service: Emulator, attempts: Attempts, twins: list[str], outcome: Outcome, template: str
) -> None:
    for sources in (twins, twins[:1]):  # it does not matter which other documents there are
        with pytest.raises(
            AirflowFailException, match=r"Add one of them, as in '\{source_stem\}-\{source_hash"
        ):
            attempts.run(ingest(sources, outcome, file_name_template=template))
    assert service.jobs() == []


@pytest.mark.parametrize(
    "template",
    ["{source_stem}-{source_hash}.txt", "{uuid}", "{source_hash}/{source_name}{source_name}{source_name}"],
)
def test_equal_names_are_two_texts_each_as_its_row_says(
    service: Emulator, attempts: Attempts, corpus: Corpus, twins: list[str], outcome: Outcome, template: str
) -> None:
    result = attempts.run(ingest(twins, outcome, file_name_template=template))
    assert result["completed"] == 2
    assert list(outcome.texts.values()) == [sample.text for sample in corpus.samples[:2]]
    assert len(outcome.text_files) == 2


def test_another_run_into_the_same_folder_leaves_the_texts_of_the_first_as_its_manifest_says(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome
) -> None:
    changed, same = corpus.sources[:2]
    attempts.run(ingest([changed, same], outcome))
    first = outcome.rows
    corpus.samples[0].path.write_bytes(corpus.samples[2].path.read_bytes())
    attempts.identity = {"run_id": "by hand"}
    result = attempts.run(ingest([changed, same], outcome))
    second = {
        row["source"]: row for row in map(json.loads, Path(result["manifest"]).read_text().splitlines())
    }
    assert second[same]["path"] == first[same]["path"]
    plain = Path(first[changed]["path"])
    assert second[changed]["path"] == str(plain.with_stem(f"{plain.stem}-{second[changed]['sha256'][:12]}"))
    for row in [*first.values(), *second.values()]:
        assert hashlib.sha256(Path(row["path"]).read_bytes()).hexdigest() == row["sha256"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("in/M\u00fcller.pdf", "in/Mu\u0308ller.pdf"),  # composed or not
        ("in/Scan.PDF", "in/scan.pdf"),
        (f"in/{'x' * 300}1.pdf", f"in/{'x' * 300}2.pdf"),
        (f"a/{'x' * 300}.pdf", f"b/{'x' * 300}.pdf"),
        ("in/M\udce4rz.pdf", "in/M\udcfcrz.pdf"),
        ("in/M\udce4rz.pdf", "in/M?rz.pdf"),
        ("in/\ud800.pdf", "in/\ud801.pdf"),
        ("in/a?b.pdf", "in/a*b.pdf"),
    ],
)
def test_names_differ_on_stores_that_know_neither_case_nor_normal_forms(first: str, second: str) -> None:
    templates = (
        "{source_stem}-{source_hash}.txt",
        "{source_name}{source_stem}{source_name}{source_hash}.txt",
    )
    for template in templates:
        one, other = (text_name(Document(source, "u"), template) for source in (first, second))
        assert one.casefold() != other.casefold()
        assert max(len(name.encode()) for name in (one, other)) <= 255


def test_ids_that_are_not_uuids_are_kept_apart() -> None:
    found = {text_name(Document("x", uuid), "{uuid}") for uuid in ("a/b", "a_b", "a:b", "a?b")}
    assert len(found) == 4
    assert "a_b" in found


LATIN_1 = (b"M\xe4rz.pdf", b"M\xfcrz.pdf", b"M\xf6rz.pdf")


@pytest.fixture
def old_share(tmp_path: Path, corpus: Corpus) -> Path:
    """A folder with three names that are not UTF-8."""
    folder = tmp_path / "share"
    folder.mkdir()
    for name, sample in zip(LATIN_1, corpus.samples, strict=False):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(sample.path.read_bytes())
    return folder


@pytest.fixture
def strict_log() -> Iterator[list[str]]:
    """Everything that is logged, encoded as a log file is: what can't be is an error."""
    lines: list[str] = []

    class Strict(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = self.format(record)
            line.encode()
            lines.append(line)

    handler = Strict(logging.INFO)  # what fsspec says at DEBUG is not ours
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.INFO)
    yield lines
    root.removeHandler(handler)
    root.setLevel(level)


def test_names_that_are_not_utf_8_are_texts_of_their_own_and_found_again(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    old_share: Path,
    outcome: Outcome,
    strict_log: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[lineage.Transfer] = []
    monkeypatch.setattr(lineage.Lineage, "report", lambda written, _: told.extend(written.transfers))
    task = heard(ingest(f"{old_share}/", outcome, skip_unchanged=True))
    result = attempts.run(task)
    assert (result["completed"], result["failed"]) == (3, 0)
    assert len(outcome.text_files) == 3
    assert sorted(outcome.texts.values()) == sorted(sample.text for sample in corpus.samples[:3])
    assert {os.fsencode(source).rpartition(b"/")[2] for source in outcome.rows} == set(LATIN_1)
    outcome.manifest.read_bytes().decode("ascii")
    assert all(Path(source).exists() for source in outcome.rows)
    json.dumps([result, attempts.ti.xcoms, task.title], ensure_ascii=False).encode()
    assert {transfer.origin[1].rpartition("/")[2] for transfer in told} == {
        "M%E4rz.pdf",
        "M%FCrz.pdf",
        "M%F6rz.pdf",
    }
    assert strict_log

    assert attempts.run(ingest(f"{old_share}/", outcome))["completed"] == 3  # cleared
    assert service.count("submit_file") == 3
    listed = ingest(str(outcome.manifest), outcome, skip_unchanged=True)
    attempts.identity = {"run_id": "another"}
    assert attempts.run(listed)["skipped"] == 3
    assert service.count("submit_file") == 3


def test_a_document_whose_name_is_not_utf_8_fails_with_a_name_that_people_can_read(
    service: Emulator, attempts: Attempts, old_share: Path, outcome: Outcome, strict_log: list[str]
) -> None:
    service.fail("submit_file", status=500, times=None)
    attempts.retries = attempts.max_tries = 0
    Path(os.fsdecode(os.fsencode(old_share) + b"/" + LATIN_1[0])).write_bytes(b"")
    with pytest.raises(Exception, match=r"M\\xe4rz\.pdf") as error:
        attempts.run(heard(ingest(f"{old_share}/", outcome, timeout=300)))
    str(error.value).encode()
    assert any(re.search(r"Retrying '.*M\\x..rz.pdf' and", line) for line in strict_log)
    report = outcome.manifest.with_name("report.html").read_text("utf-8")
    assert r"M\xe4rz.pdf" in report


def test_a_mapped_task_has_a_title_that_a_database_takes(outcome: Outcome) -> None:
    assert ingest(["/in/M\udce4rz.pdf"], outcome).title == r"/in/M\xe4rz.pdf"


def test_a_destination_in_the_home_folder_is_one_place(
    service: Emulator, attempts: Attempts, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        attempts.run(ComplianceIngestOperator(task_id="t", sources=corpus.sources[:1], destination="~/out/"))
    assert service.count("submit_file") == 1
    assert len(Outcome(tmp_path / "home/out").text_files) == 1
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"run_id": "load:2026-01"}, {"run_id": "load_2026-01"}),
        ({"task_id": "t", "map_index": 0}, {"task_id": "t-0"}),
        ({"dag_id": "D"}, {"dag_id": "d"}),
        ({"run_id": "x" * 200 + "1"}, {"run_id": "x" * 200 + "2"}),
    ],
)
def test_each_task_instance_has_a_folder_of_its_own(one: dict[str, Any], other: dict[str, Any]) -> None:
    folders = [task_folder(TaskInstance(**fields)) for fields in (one, other)]
    assert folders[0].casefold() != folders[1].casefold()
    assert folders[0] == task_folder(TaskInstance(**one, try_number=2))
    assert all(folder.count("/") == 3 for folder in folders)


def test_link_to_a_report_quotes_the_name_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", "aws://")
    monkeypatch.setenv(
        "AIRFLOW__COMPLIANCE__REPORT_URLS", '{"s3://c@b/texts/": "https://files.example.com/"}'
    )
    report = Location("s3://c@b/texts/") / "_ingest/d/manual__2026-01-01T00_00_00+00_00/t/report.html"
    assert report_link(report) == (
        "https://files.example.com/_ingest/d/manual__2026-01-01T00_00_00%2B00_00/t/report.html"
    )
