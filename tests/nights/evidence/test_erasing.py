"""Documents are erased without a trace, and the evidence of all others stays valid."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from airflow_provider.exceptions import (
    ComplianceInputError,
    ComplianceServerError,
    ComplianceStorageError,
    ComplianceSupersededError,
)
from airflow_provider.nights.evidence import chain as chains
from airflow_provider.nights.evidence.erasing import Erasure
from airflow_provider.nights.evidence.holds import Hold, place_hold, read_holds, release_holds
from airflow_provider.nights.evidence.jobs import UNKNOWN
from airflow_provider.nights.evidence.traces import Traces
from airflow_provider.nights.evidence.verifier import CHANGED, ERASING
from airflow_provider.nights.index.nights import EarlierNights, Night, TaskKey, latest_rows
from airflow_provider.redaction.addresses import redact
from airflow_provider.storage import atomic, names
from airflow_provider.storage.jsonl import TableFile, to_line, to_lines
from tests.nights.evidence.erasable import ANNA, BERT, Tree
from tests.nights.evidence.test_kills import COMPLETED, KILLED, in_process
from tests.support.forking import may_fork
from tests.support.nights import Nights, decision


def earlier_rows(tree: Tree) -> set[str]:
    """Return the documents that a later night finds, by the entries of earlier ones, which must be intact."""
    nights = EarlierNights(
        tree.root, "ingest", Night("2026-03-20T00:00:00+00:00", "d/later"), TaskKey("d", "ingest")
    )
    assert all(entry.is_intact(table) for entry in nights.entries() for table in entry.tables)
    rows = latest_rows(nights.entries(), "manifest", {ANNA, BERT}, lambda row: row.get("source"))
    return {row["source"] for _, row in rows}


def fail(*_: Any) -> Any:
    raise ComplianceServerError("The service is down.", status=503)


def test_nothing_of_an_erased_document_is_left(tree: Tree) -> None:
    for day in (1, 2):
        tree.close(day, ANNA, BERT)
    tree.close(3, BERT)
    tree.write_night(4, ANNA, BERT)  # not closed yet
    assert len(tree.find_traces(ANNA)) > 20
    before = tree.find_traces(BERT)
    record = tree.erase(ANNA).record
    assert tree.find_traces(ANNA) == []
    assert tree.find_traces(BERT) == before
    assert tree.statuses() == "ERASED ERASED ERASED OK OK"
    # Four tables and a report; and the report that says that it has vanished.
    assert [check.erased for check in tree.verify()] == [5, 5, 1, 0, 0, 0]
    assert earlier_rows(tree) == {BERT}
    assert sorted(job[0] for job in tree.jobs) == ["assessment_id", "uuid"]
    assert (record["reason"], record["by"], record["documents"]) == ("A request", "the officer", 1)
    assert len(record["digests"]) == 8
    assert "Anna" not in (tree.path / "_evidence/nights/00000004.json").read_text()


def test_rows_that_are_back_after_an_erasure_are_found(tree: Tree, tmp_path: Path) -> None:
    tree.close(1, ANNA, BERT)
    shutil.copytree(tree.path / "dt=2026-03-01", backup := tmp_path / "backup")
    tree.erase(ANNA)
    (report,) = tree.path.glob("dt=2026-03-01/_night/report-*")
    erased = report.read_bytes()
    shutil.copytree(backup, tree.path / "dt=2026-03-01", dirs_exist_ok=True)
    report.write_bytes(erased)
    assert tree.statuses() == "CHANGED OK OK"
    (check, *_) = tree.verify()
    assert all("erased rows were restored" in text for _, text in check.problems)


def test_jobs_are_listed_once_with_the_account_that_any_row_names(tree: Tree) -> None:
    tree.close(1, BERT)
    parameters = tree.write_night(2, ANNA)
    manifest, cells = (
        Path(parameters[task][name][7:])
        for task, name in (("ingested", "manifest"), ("assessed", "assessments"))
    )
    for path in (manifest, cells):
        path.write_bytes(to_line({**json.loads(path.read_bytes()), "account": "mine"}))
    jobs = tree.erasure(ANNA).find().jobs  # findings name none
    assert sorted((column, account) for column, _, account in jobs) == [
        ("assessment_id", "mine"), ("uuid", "mine")
    ]  # fmt: skip
    manifest.write_bytes(b"")
    jobs = tree.erasure(ANNA).find().jobs
    assert {account for column, _, account in jobs if column == "uuid"} == {UNKNOWN}


def test_texts_and_results_that_are_back_after_an_erasure_are_erased_again(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    folder = tree.path / "dt=2026-03-01"
    back = {path: path.read_bytes() for path in tree._files() if names.digest(ANNA) in path.name}
    cell = names.digest(f"{ANNA}\n7")
    back[folder / f"results/DORA-{cell}.json"] = b"{}"
    tree.erase(ANNA)
    for path, content in back.items():
        path.write_bytes(content)
    erasure = tree.erasure(ANNA)
    erasure.run(tree)
    assert len(back) == 3
    assert not any(path.exists() for path in back)
    assert not erasure.is_unknown
    assert tree.statuses() == "ERASED OK OK OK OK"


def test_what_is_back_or_was_left_is_removed_by_erasing_again(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    part = tree.path / f"dt=2026-03-01/.{'1' * 16}.part"
    part.write_text("Anna")
    (salts,) = tree.path.glob("dt=*/_ingest/d/run/ingest/*.salts")
    before = salts.read_bytes()
    tree.erase(ANNA)
    erased = salts.read_bytes()
    assert part.exists()  # it may be of a write that goes on
    os.utime(part, (0, 0))
    salts.write_bytes(before)
    assert tree.statuses() == "CHANGED OK OK"
    erasure = tree.erasure(ANNA)
    erasure.run(tree)
    assert sorted(erasure.removed) == sorted(
        f"{tree.root.uri}{path.relative_to(tree.path)}" for path in (part, salts)
    )
    assert (erasure.is_unknown, erasure.has_erased, erasure.left) == (False, False, [])
    assert salts.read_bytes() == erased
    assert tree.statuses() == "ERASED OK OK"


def test_lists_of_erasures_that_never_began_are_removed(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    (tree.path / "_holds").mkdir(exist_ok=True)
    for name in (f"{'1' * 16}.sources", f".{'2' * 16}.part"):
        (tree.path / "_holds" / name).write_text('{"sources": ["file:///docs/carl.pdf"]}')
    tree.erase(ANNA)
    assert list((tree.path / "_holds").iterdir()) == []


@pytest.mark.parametrize("step", ["_mark_salts", "_remove_lists"])
def test_night_whose_rows_were_written_during_an_erasure_can_be_closed(
    tree: Tree, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the attempt that has found the rows is killed."""
    tree.close(1, ANNA, BERT)
    tree.begin(ANNA)
    outputs = tree.write_night(2, ANNA, BERT)
    with monkeypatch.context() as patch:
        patch.setattr(Erasure, step, fail)
        with pytest.raises(ComplianceServerError):
            tree.erase(resume=True)
    tree.erase(resume=True)
    assert tree.find_traces(ANNA) == []
    tree.nights.close(2, **outputs)
    assert tree.statuses() == "ERASED OK OK OK"


def test_long_field_of_a_csv_file_stays(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.nights.evidence import erasable

    monkeypatch.setitem(erasable.SECRET, BERT, "It is long. " * 20_000)
    tree.close(1, ANNA, BERT)
    before, limit = tree.find_traces(BERT), csv.field_size_limit()
    tree.erase(ANNA)
    assert tree.find_traces(ANNA) == []
    assert tree.find_traces(BERT) == before
    assert csv.field_size_limit() == limit


def test_dry_run_changes_nothing(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    before = {path: path.read_bytes() for path in tree._files()}
    found = tree.erasure(ANNA).find()
    assert {path: path.read_bytes() for path in tree._files()} == before
    assert sum(found.tables.values()) == 5
    assert len(found.objects) == 2
    names = [*found.reports, *found.states]
    assert sorted(Path(name).name[:6] for name in names) == ["0.json", "report"]
    assert found.nights == {1}


def test_unknown_document_is_an_error(tree: Tree) -> None:
    tree.close(1, BERT)
    with pytest.raises(ComplianceInputError, match=r"No night .* has the document"):
        tree.erase(ANNA)
    assert tree.statuses() == "OK"


def test_results_of_an_equal_text_stay(tree: Tree) -> None:
    tree.close(1, BERT, ANNA, same_results=True)
    tree.erase(ANNA)
    assert tree.statuses() == "ERASED OK OK"
    assert (tree.path / "dt=2026-03-01/results/DORA-same.json").exists()
    assert [job[1] for job in tree.jobs if job[0] == "assessment_id"] == []


def test_rows_that_name_objects_elsewhere_remove_nothing_there(tree: Tree, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("of others")
    parameters = tree.write_night(1, ANNA)
    manifest = Path(parameters["ingested"]["manifest"][7:])
    row = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**row, "path": f"file://{other}"}) + "\n")
    tree.erase(ANNA)
    assert other.exists()


def test_a_moved_tree_is_erased(tree: Tree, tmp_path: Path) -> None:
    tree.close(1, ANNA, BERT)
    tree.path.rename(tmp_path / "moved")
    moved = Tree(Nights(f"file://{tmp_path}/moved/", tmp_path / "in"))
    moved.erase(ANNA)
    assert moved.find_traces(ANNA) == []
    assert moved.statuses() == "ERASED OK OK"


def test_documents_are_erased_one_after_the_other(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    tree.erase(ANNA)
    tree.erase(BERT)
    assert tree.find_traces(ANNA) == tree.find_traces(BERT) == []
    assert tree.statuses() == "ERASED OK OK OK OK"


@pytest.mark.parametrize("what", ["rows", "report", "salt"])
def test_an_erasure_hides_no_other_change(tree: Tree, what: str) -> None:
    tree.close(1, ANNA, BERT)
    tree.erase(ANNA)
    folder = tree.path / "dt=2026-03-01"
    (salts,) = folder.glob("_ingest/d/run/ingest/*.salts")
    if what == "report":
        (page,) = folder.glob("_night/*.html")
        page.write_text(page.read_text() + " ")
    else:
        salts.write_text("-\n-\n")
        if what == "rows":
            (folder / "_ingest/d/run/ingest/manifest.jsonl").write_text("")
    check = tree.verify()[0]
    assert check.status == "CHANGED"


def test_changed_line_elsewhere_can_still_be_restored(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    table = tree.path / "dt=2026-03-01/_ingest/d/run/ingest/manifest.jsonl"
    table.write_bytes(table.read_bytes().replace(b"bert.pdf", b"berx.pdf"))
    tree.erase(ANNA)
    assert tree.statuses() == "CHANGED OK OK"
    table.write_bytes(table.read_bytes().replace(b"berx.pdf", b"bert.pdf"))
    assert tree.statuses() == "ERASED OK OK"


def test_changed_rows_of_the_document_go_and_stay_a_change(tree: Tree) -> None:
    tree.close(1, BERT, ANNA)
    path = tree.path / "dt=2026-03-01/_ingest/d/run/ingest/manifest.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second.replace(b'"uuid":"u-', b'"uuid":"x-'))
    tree.erase(ANNA)
    assert tree.find_traces(ANNA) == []
    assert path.read_bytes() == first
    assert tree.statuses() == "CHANGED OK OK"


# -- nights that are closed later


def test_an_erased_document_has_not_vanished(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    tree.erase(ANNA)
    assert tree.close(2, BERT)["vanished"] == 0
    assert tree.close(3, ANNA, BERT)["vanished"] == 0  # still in the sources: it is new


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_night_is_closed_after_documents_of_it_were_erased(tree: Tree, is_closed: bool) -> None:
    """Its task has returned more rows than there are."""
    parameters = tree.write_night(1, ANNA, BERT)
    if is_closed:
        tree.nights.close(1, **parameters)
    tree.erase(ANNA)
    closed = tree.nights.close(1, **parameters, identity={"try_number": 2})
    assert closed["documents"] == (2 if is_closed else 1)  # it has its record already
    assert tree.statuses() == ("ERASED OK OK" if is_closed else "OK OK OK")
    tree.erase(BERT)
    assert tree.find_traces(BERT) == []


def test_lost_rows_are_still_noticed(tree: Tree) -> None:
    parameters = tree.write_night(1, ANNA, BERT)
    tree.erase(ANNA)
    Path(parameters["ingested"]["manifest"][7:]).write_text("")
    with pytest.raises(ComplianceInputError, match="has lost rows"):
        tree.nights.close(1, **parameters)


@pytest.mark.parametrize("is_written", [True, False])
def test_rows_of_a_resumed_erasure_count_once(
    tree: Tree, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the first attempt has written the table."""
    parameters = tree.write_night(1, ANNA, BERT)
    manifest = Path(parameters["ingested"]["manifest"][7:])

    original = Erasure._write_table
    with monkeypatch.context() as patch:
        patch.setattr(
            Erasure,
            "_write_table",
            lambda *given: "/manifest" in given[1] and (is_written and original(*given), fail()),
        )
        with pytest.raises(ComplianceServerError):
            tree.erase(ANNA)
    assert len(manifest.read_bytes().splitlines()) == (1 if is_written else 2)
    tree.erase(ANNA, resume=True)
    (kept,) = manifest.read_bytes().splitlines(keepends=True)
    manifest.write_bytes(b"")
    with pytest.raises(ComplianceInputError, match="has lost rows"):
        tree.nights.close(1, **parameters)
    manifest.write_bytes(kept)
    assert tree.nights.close(1, **parameters)["documents"] == 1


def test_a_night_that_is_closed_during_an_erasure_is_retried(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    parameters = tree.write_night(2, ANNA, BERT)

    def close() -> None:
        with pytest.raises(ComplianceStorageError, match=r"erasure of record 2 .* retry") as caught:
            tree.nights.close(2, **parameters)
        assert caught.value.transient

    tree.erase_during(close, ANNA)
    assert tree.nights.close(2, **parameters, identity={"try_number": 2})["documents"] == 1
    assert tree.statuses() == "ERASED OK OK OK"


def test_a_night_that_read_its_tables_before_an_erasure_is_retried(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.close(1, ANNA, BERT)
    parameters = tree.write_night(2, ANNA, BERT)
    append = chains.Chain.append

    def erase_before(chain: Any, make_record: Any) -> Any:
        monkeypatch.undo()
        tree.erase(ANNA)
        return append(chain, make_record)

    monkeypatch.setattr(chains.Chain, "append", erase_before)
    with pytest.raises(ComplianceStorageError, match="erased while the night was being closed: retry"):
        tree.nights.close(2, **parameters)
    tree.nights.close(2, **parameters, identity={"try_number": 2})
    assert tree.statuses() == "ERASED OK OK OK"


def test_a_night_that_is_closed_while_an_erasure_looks_around_is_erased_too(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.close(1, ANNA, BERT)
    parameters = tree.write_night(2, ANNA, BERT)
    create_once = atomic.create_once

    def close_before(*arguments: Any) -> Any:
        monkeypatch.undo()
        tree.nights.close(2, **parameters)
        return create_once(*arguments)

    monkeypatch.setattr(chains, "create_once", close_before)
    tree.erase(ANNA)
    assert tree.statuses() == "ERASED ERASED OK OK"
    assert tree.find_traces(ANNA) == []


# -- kills, failures, and several at once


@may_fork
def test_a_kill_at_any_step_is_completed_by_the_next_attempt(tree: Tree, tmp_path: Path) -> None:
    """With the name, or without it: what is left says which document it is."""
    tree.close(1, ANNA, BERT)
    step, kills = 0, Counter[int]()
    while True:
        step += 1
        shutil.copytree(tree.path, tmp_path / str(step))
        copy = Tree(Nights(f"file://{tmp_path}/{step}/", tmp_path / "in"))
        process = in_process(copy.erase, ANNA, kill_step=step)
        process.join()
        if process.exitcode == COMPLETED:
            break
        assert process.exitcode == KILLED
        records = len(list((copy.path / "_evidence/nights").glob("*.json")))
        kills[records] += 1
        if records == 1:  # nothing has begun
            assert copy.statuses() == "OK"
            continue
        if records == 2:
            copy.erase(*([ANNA] if step % 2 else []), resume=True)
        assert copy.find_traces(ANNA) == []
        assert copy.statuses().startswith("ERASED OK OK")
        assert earlier_rows(copy) == {BERT}
    assert kills.keys() == {1, 2, 3, 4}
    assert kills[2] > 20


def test_jobs_that_the_service_does_not_delete_are_left_and_tried_again(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    tree.refused = {name for _, name, _ in tree.erasure(ANNA).find().jobs if name.startswith("u-")}
    erasure = tree.erasure(ANNA, task="d/run/erase")
    record = erasure.run(tree)
    assert [job[1] for job in erasure.jobs_left] == [*tree.refused]
    assert [[one[1] for one in check.record["left"]] for check in tree.verify()[2:]] == [
        [*{job[1] for job in tree.jobs}, *tree.refused],
        [*tree.refused],
    ]
    assert tree.find_traces(ANNA) == []
    tree.close(2, BERT)  # the service has no say in that
    tree.refused = set()
    again = tree.erasure(resume=True)
    again.run(tree)
    assert again.jobs_left == []
    with pytest.raises(ComplianceInputError, match="nothing to complete"):
        tree.erase(resume=True)
    assert sorted(job[0] for job in tree.jobs) == ["assessment_id", "uuid"]
    assert tree.statuses() == "ERASED OK OK OK"
    assert record.number == 2


def test_retry_of_a_task_that_has_erased_adds_nothing(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    records = [tree.erase(ANNA, task="d/run/erase") for _ in range(2)]
    assert records[0].number == records[1].number == 2
    assert len(tree.verify()) == 4


def test_connection_is_checked_before_anything_is_erased(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.close(1, ANNA, BERT)
    before = tree.find_traces(ANNA)
    monkeypatch.setattr(tree, "check", fail)
    with pytest.raises(ComplianceServerError):
        tree.erase(ANNA)
    assert (tree.find_traces(ANNA), tree.statuses()) == (before, "OK")


def test_attempt_that_hung_replaces_no_table(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.close(1, ANNA, BERT)
    complete = TableFile.complete

    def hang(table: TableFile) -> None:
        complete(table)
        monkeypatch.setattr(TableFile, "complete", complete)
        tree.erase(ANNA, task="t")  # the next attempt

    monkeypatch.setattr(TableFile, "complete", hang)
    with pytest.raises(ComplianceSupersededError):
        tree.erase(ANNA, task="t")
    assert tree.statuses() == "ERASED OK OK"


def test_attempt_that_hung_does_not_name_the_documents_again(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.close(1, ANNA, BERT)
    tree.begin(ANNA)
    search = Traces._read_tables

    def hang(traces: Traces) -> None:
        search(traces)
        monkeypatch.setattr(Traces, "_read_tables", search)
        tree.erase(resume=True)  # another attempt

    monkeypatch.setattr(Traces, "_read_tables", hang)
    with pytest.raises(ComplianceSupersededError):
        tree.erase(resume=True)
    assert tree.find_traces(ANNA) == []
    assert tree.statuses() == "ERASED OK OK"


def test_attempt_that_hung_as_it_wrote_the_list_removes_it(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.close(1, ANNA, BERT)
    tree.begin(ANNA)

    def hang(*arguments: Any) -> None:
        monkeypatch.setattr("airflow_provider.nights.evidence.erasing.put_sync", atomic.put_sync)
        tree.erase(resume=True)  # another attempt
        atomic.put_sync(*arguments)

    monkeypatch.setattr("airflow_provider.nights.evidence.erasing.put_sync", hang)
    with pytest.raises(ComplianceSupersededError):
        tree.erase(resume=True)
    assert tree.find_traces(ANNA) == []
    assert tree.statuses() == "ERASED OK OK"


def test_attempt_that_hung_leaves_the_list_of_the_next_erasure(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.close(1, ANNA, BERT)
    remove_lists = Erasure._remove_lists

    def hang(erasure: Erasure, entry: chains.ChainRecord) -> None:
        monkeypatch.setattr(Erasure, "_remove_lists", remove_lists)
        tree.erase(resume=True)  # another attempt
        tree.begin(BERT)
        remove_lists(erasure, entry)

    monkeypatch.setattr(Erasure, "_remove_lists", hang)
    with pytest.raises(ComplianceSupersededError):
        tree.erase(ANNA)
    tree.erase(resume=True)
    assert tree.find_traces(BERT) == []
    assert tree.statuses() == "ERASED OK OK OK OK"


def test_a_second_erasure_waits_for_the_first_one(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)

    def erase_other() -> None:
        with pytest.raises(ComplianceStorageError, match="once the erasure of record 2 is complete"):
            tree.erase(BERT, task="another")
        with pytest.raises(ComplianceStorageError, match="Documents can be held once"):
            place_hold(tree.root, BERT, "A lawsuit", "the lawyer")

    tree.erase_during(erase_other, ANNA, task="one")
    tree.erase(BERT)
    assert tree.find_traces(ANNA) == tree.find_traces(BERT) == []


def test_attempts_that_complete_an_erasure_at_once_add_one_record(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)

    with pytest.raises(ComplianceSupersededError):
        tree.erase_during(lambda: tree.erase(resume=True), ANNA)
    assert tree.find_traces(ANNA) == []
    assert tree.statuses() == "ERASED OK OK"


# -- holds


def test_held_document_is_not_erased_until_it_is_released(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    place_hold(tree.root, "*/Anna*", "A lawsuit", "the lawyer")
    before = tree.find_traces(ANNA)
    with pytest.raises(ComplianceInputError, match=r"Release the hold first.*record 2 \(A lawsuit\)"):
        tree.erase(ANNA, BERT)
    assert tree.find_traces(ANNA) == before
    tree.erase(BERT)
    with pytest.raises(ComplianceInputError, match=r"No hold has the pattern 'Anna'. In force: '\*/Anna\*'"):
        release_holds(tree.root, "Anna", "The end", "the lawyer")
    release_holds(tree.root, "*/Anna*", "The end", "the lawyer")
    tree.erase(ANNA)
    assert "Anna" not in "".join(path.read_text() for path in (tree.path / "_evidence").rglob("*.json"))


@pytest.mark.parametrize("is_killed", [False, True])
def test_pattern_of_a_released_hold_goes_and_others_stay(tree: Tree, is_killed: bool) -> None:
    tree.close(1, ANNA, BERT)
    place_hold(tree.root, ANNA, "A lawsuit", "the lawyer")
    (pattern,) = (tree.path / "_holds").iterdir()
    content = pattern.read_bytes()
    place_hold(tree.root, "*/carl.pdf", "Another", "the lawyer")
    release_holds(tree.root, ANNA, "The end", "the lawyer")
    assert not pattern.exists()
    assert tree.statuses() == "OK OK OK OK"
    if is_killed:  # before it was removed
        pattern.write_bytes(content)
    tree.erase(ANNA)
    assert tree.find_traces(ANNA) == []
    assert tree.statuses() == "ERASED OK OK OK OK OK"
    with pytest.raises(ComplianceInputError, match="Release the hold first"):
        tree.erase("file:///docs/carl.pdf")


def test_nothing_is_erased_while_a_hold_is_not_known(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    place_hold(tree.root, "*/other", "A lawsuit", "the lawyer")
    (pattern,) = (tree.path / "_holds").iterdir()
    pattern.unlink()
    with pytest.raises(ComplianceStorageError, match="what the hold of record 2 covers is unknown"):
        tree.erase(ANNA)
    assert tree.statuses() == "OK CHANGED"


# -- documents that are hard to find


def test_erasure_of_a_night_that_is_not_closed_is_resumed_without_the_name(tree: Tree) -> None:
    tree.close(1, BERT)
    tree.write_night(2, ANNA, BERT)

    tree.begin(ANNA)
    tree.erase(resume=True)
    assert tree.find_traces(ANNA) == []
    assert list((tree.path / "_holds").iterdir()) == []
    assert tree.statuses() == "OK OK OK"


@pytest.mark.parametrize("content", [None, b"{"])
def test_erasure_whose_list_is_lost_is_not_complete(tree: Tree, content: bytes | None) -> None:
    tree.close(1, ANNA, BERT)
    tree.begin(ANNA)
    (listed,) = (tree.path / "_holds").iterdir()
    listed.unlink() if content is None else listed.write_bytes(content)
    for others in ((), (BERT,), (ANNA, BERT)):
        with pytest.raises(ComplianceInputError, match="resume it with --source"):
            tree.erase(*others, resume=True)
    tree.erase(ANNA, resume=True)
    assert tree.find_traces(ANNA) == []
    assert tree.statuses() == "ERASED OK OK"


def test_refused_erasure_leaves_no_name(tree: Tree) -> None:
    tree.close(1, BERT)
    with pytest.raises(ComplianceInputError):
        tree.erase(ANNA)
    assert not (tree.path / "_holds").exists()


@pytest.mark.parametrize(
    ("pattern", "source", "is_held"),
    [
        ("file:///docs/[2024]*", "file:///docs/[2024] anna.pdf", True),
        ("file:///docs/[2024]*", "file:///docs/2.pdf", False),
        ("*/a?.pdf", "file:///docs/ab.pdf", True),
        ("*/a?.pdf", "file:///docs/a.pdf", False),
        ("file:///docs/a.pdf", "file:///docs/a-pdf", False),
        ("*", "file:///docs/a\nb.pdf", True),
    ],
)
def test_only_asterisk_and_question_mark_are_special_in_a_pattern(
    pattern: str, source: str, is_held: bool
) -> None:
    assert Hold(1, pattern).covers(source) is is_held


@pytest.mark.parametrize(
    ("erased", "kept"),
    [
        ("file:///docs/plan.pdf", "file:///other/plan.pdf"),
        ("file:///docs/plan.pdf", "file:///docs/my plan.pdf"),
        ("file:///docs/plan.pdf", "file:///docs/exit-plan.pdf"),
        ("file:///docs/plan.pdf", "file:///docs/plan.pdf.bak"),
        ("file:///docs/1234", "file:///docs/12345"),
        ("https://user:secret@example.org/plan?password=x", "https://example.org/plan"),
    ],
)
def test_reports_lose_the_document_and_keep_similar_ones(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, erased: str, kept: str
) -> None:
    from tests.nights.evidence import erasable

    monkeypatch.setattr(erasable, "SECRET", {erased: "It is secret", kept: "It is public"})
    tree.close(1, erased, kept)
    tree.erase(erased)
    folder = tree.path / "dt=2026-03-01"
    page = (folder / "_assess/d/run/assess/report.html").read_text()
    assert "It is secret" not in page
    assert "It is public" in page
    assert [path.name for path in (folder / "_work/state").iterdir()] == ["1.json"]
    assert [path.read_bytes().count(b'"source":') for path in sorted(folder.rglob("*.jsonl"))] == [1] * 4
    assert tree.statuses() == "ERASED OK OK"


def test_texts_and_results_that_no_row_names_any_more_are_erased(tree: Tree) -> None:
    """A task that was cleared has written its table again, with others."""
    tree.close(1, ANNA, BERT)
    folder = tree.path / "dt=2026-03-01"
    text = folder / f"Anna-{names.digest(ANNA)}-0123456789ab.txt"
    cell = names.digest(f"{ANNA}\n7")
    results = folder / "results" / f"DORA-{cell}-0123456789ab.json"
    other = folder / f"Bert-{names.digest(BERT)}.txt"
    for path in (text, results, other):
        path.write_text("left over")
    tree.erase(ANNA)
    assert [path.exists() for path in (text, results, other)] == [False, False, True]


def test_lists_with_logins_are_erased_too(tree: Tree) -> None:
    address = "https://anna:secret@example.org/contract.pdf?signature=1234"
    source = redact(address)
    assert source != address
    parameters = tree.write_night(1, BERT)
    manifest = Path(parameters["ingested"]["manifest"][7:])
    manifest.write_bytes(manifest.read_bytes() + to_line({"source": source, "status": "FAILED"}))
    shards = tree.path / "dt=2026-03-01/_work/shards/1.jsonl"
    shards.write_bytes(to_lines([{"source": address}, {"source": BERT}]))
    tree.erase(source)
    assert shards.read_bytes() == to_line({"source": BERT})


def test_a_night_with_returned_decisions_is_closed_again_after_an_erasure(tree: Tree) -> None:
    """The task still returns what an expert has decided on the erased document."""
    parameters = tree.write_night(1, ANNA, BERT)
    parameters["reviewed"] = [decision(ANNA), decision(BERT)]
    tree.nights.close(1, **parameters)
    tree.erase(ANNA)
    assert tree.nights.close(1, **parameters, identity={"try_number": 2})["decisions"] == 2
    assert tree.find_traces(ANNA) == []
    assert tree.statuses() == "ERASED OK OK"


@pytest.mark.parametrize(
    "name", ["findings/night=2026-03-01/a.parquet", "findings/night=2026-03-02/b.parquet"]
)
def test_file_that_can_not_be_read_is_named_and_the_rest_is_erased(tree: Tree, name: str) -> None:
    tree.close(1, ANNA, BERT)
    path = tree.path / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    erasure = tree.erasure(ANNA)
    erasure.run(tree)
    assert erasure.left == [f"{tree.root.uri}{name}"]
    assert tree.find_traces(ANNA) == []
    assert tree.verify()[-2].record["files_left"] == 1


def test_part_of_a_killed_write_is_erased(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    old, new = (tree.path / f"dt=2026-03-01/.{digit * 16}.part" for digit in "12")
    for path in (old, new):
        path.write_text("Anna")
    os.utime(old, (0, 0))
    tree.erase(ANNA)
    assert [path.exists() for path in (old, new)] == [False, True]


@pytest.mark.parametrize(
    "name", ["_evidence/nights/00000001.json", "dt=2026-03-01/_ingest/d/run/ingest/manifest.jsonl"]
)
def test_row_that_names_something_else_of_ours_does_not_remove_it(tree: Tree, name: str) -> None:
    tree.close(1, BERT)
    parameters = tree.write_night(2, ANNA)
    manifest = Path(parameters["ingested"]["manifest"][7:])
    row = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**row, "path": f"{tree.root.uri}{name}"}) + "\n")
    tree.erase(ANNA)
    assert tree.statuses() == "OK OK OK"


def test_resume_with_another_document_erases_both_or_says_that_nothing_names_it(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    tree.begin(ANNA)
    erasure = tree.erasure("file:///docs/other.pdf", resume=True)
    erasure.run(tree)
    assert erasure.is_unknown
    assert tree.find_traces(ANNA) == []
    tree.close(2, BERT, ANNA)
    tree.begin(ANNA)
    erasure = tree.erasure(BERT, resume=True)
    erasure.run(tree)
    assert not erasure.is_unknown
    assert tree.find_traces(ANNA) == tree.find_traces(BERT) == []


def test_erasure_whose_record_can_not_be_added_leaves_no_name(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.close(1, ANNA, BERT)

    def refuse(*_: Any) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(chains, "create_once", refuse)
        with pytest.raises(PermissionError):
            tree.erase(ANNA)
    assert list((tree.path / "_holds").iterdir()) == []


def test_a_second_hold_leaves_the_first_in_force(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    for pattern in ("*/Anna*", BERT):
        place_hold(tree.root, pattern, "A lawsuit", "the lawyer")
    for source in (ANNA, BERT):
        with pytest.raises(ComplianceInputError, match="Release the hold first"):
            tree.erase(source)
    release_holds(tree.root, BERT, "The end", "the lawyer")
    with pytest.raises(ComplianceInputError, match="Release the hold first"):
        tree.erase(ANNA)


def test_hold_is_not_lifted_by_an_edited_pattern(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    place_hold(tree.root, "*/Anna*", "A lawsuit", "the lawyer")
    (pattern,) = (tree.path / "_holds").iterdir()
    pattern.write_text(pattern.read_text().replace("Anna", "Bert"))
    with pytest.raises(ComplianceStorageError, match="is gone or was changed"):
        tree.erase(ANNA)


def test_hold_on_an_address_with_a_login_covers_it_and_stores_no_login(tree: Tree) -> None:
    address = "https://anna:secret@example.org/a.pdf"
    place_hold(tree.root, "https://anna:secret@example.org/*", "A lawsuit", "the lawyer")
    (pattern,) = (tree.path / "_holds").iterdir()
    assert "secret" not in pattern.read_text()
    (hold,) = read_holds(chains.Chain(tree.root), chains.Chain(tree.root).find_head())
    assert hold.covers(redact(address))
    release_holds(tree.root, "https://anna:secret@example.org/*", "The end", "the lawyer")


@pytest.mark.parametrize("damage", [None, b"{", b'{"source": 1}\n'])
def test_damaged_table_of_another_task_does_not_stop_an_erasure(tree: Tree, damage: bytes | None) -> None:
    tree.close(1, ANNA, BERT)
    (table,) = tree.path.glob("**/assessments.jsonl")
    table.unlink() if damage is None else table.write_bytes(damage)
    tree.erase(ANNA)
    assert tree.find_traces(ANNA) == []
    tree.close(2, BERT)


def test_compressed_table_that_is_damaged_is_named_and_the_rest_is_erased(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    tree.close(2, BERT)
    (table, _) = sorted(tree.path.glob("**/findings.jsonl.gz"))
    table.write_bytes(table.read_bytes()[:-20])
    erasure = tree.erasure(ANNA)
    erasure.run(tree)
    assert erasure.left == [f"{tree.root.uri}{table.relative_to(tree.path)}"]
    table.unlink()
    assert tree.find_traces(ANNA) == []
    tree.close(3, BERT)


def test_list_of_documents_stays_private(tree: Tree) -> None:
    tree.close(1, ANNA, BERT)
    (listed,) = tree.path.glob("**/_work/shards/*.jsonl")
    listed.chmod(0o600)
    tree.erase(ANNA)
    assert listed.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "records",
    [
        [{"kind": "erased", "completes": 2, "jobs": 0, "left": []}],
        [{"kind": "erased", "completes": 1, "jobs": 0, "left": []}],
        [{"kind": "erasure", "digests": [], "nights": [1], "documents": 1}],
        [
            {"kind": "erasure", "digests": [], "nights": [1], "documents": 1},
            {"kind": "erased", "completes": 2, "left": []},
        ],
    ],
    ids=["itself", "a night", "alone", "without digests"],
)
def test_records_that_erase_nothing_hide_no_swapped_report(tree: Tree, records: list[dict[str, Any]]) -> None:
    tree.close(1, ANNA, BERT)
    (page,) = tree.path.glob("dt=2026-03-01/_night/*.html")
    page.write_text("All is well")
    replaced = {"1": hashlib.sha256(b"All is well").hexdigest()}
    for record in records:
        made = {"version": 3, "at": "", "by": "", "reason": "", "reports": replaced, **record}
        chains.Chain(tree.root).append(mock.Mock(return_value=made))
    assert {CHANGED, ERASING} & {kind for check in tree.verify() for kind in check.counts}
