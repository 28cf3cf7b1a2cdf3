"""Decisions of experts: where they are written, and which of them a later night reads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.nights.index.nights import EarlierNights, Night, TaskKey
from airflow_provider.nights.review.decisions import find_root, read_decisions, write_decisions
from airflow_provider.storage.locations import Location

NIGHT, NEXT, LAST = (f"2026-03-0{day}T00:00:00+00:00" for day in (1, 2, 3))


def ti(run: str = "r1", task: str = "review") -> SimpleNamespace:
    return SimpleNamespace(dag_id="d", run_id=run, task_id=task, map_index=-1)


def decision(findings: str = "", **changes: Any) -> dict[str, Any]:
    return {
        "source": "in/a.pdf",
        "night": NIGHT,
        "cell": "c1",
        "framework": "DORA",
        "criterion": "D-1",
        "decision": "changed",
        "category_before": "MISSING",
        "category_after": "SUFFICIENTLY_REGULATED",
        "expert_id": "e-1",
        "answered_by": "ada",
        "rational_feedback": "Annex 4.",
        "decided_at": "2026-03-01T09:00:00+00:00",
        **({"findings": findings} if findings else {}),
        **changes,
    }


def nights_of(root: Path, night: str, run: str = "d/next") -> EarlierNights:
    task = TaskKey("d", "assess")
    return EarlierNights(Location(f"file://{root}"), "assess", Night(night, run), task, "account")


def assessed(root: Path, night: str = NIGHT, shard: str = "a") -> str:
    """Let a night publish its findings below the root; return their URI."""
    nights_of(root, night, f"d/{night}{shard}").publish({}, ())
    return f"file://{root}/dt={night[:10]}/_assess/{shard}/findings.jsonl"


def write(*rows: dict[str, Any], task: Any = None) -> list[Location]:
    return write_decisions(rows, None, task or ti(), "account")


def read(root: Path, night: str = NEXT) -> dict[tuple[str, str], dict[str, Any]]:
    return read_decisions(nights_of(root, night))


def test_decisions_are_written_beside_the_findings_and_read_by_the_next_night(tmp_path: Path) -> None:
    one, other, two = (
        assessed(tmp_path / name, shard=shard) for name, shard in (("one", "a"), ("one", "b"), ("two", "a"))
    )
    rows = [decision(one), decision(two), decision(other, criterion="D-2")]
    locations = write(*rows)
    assert [str(each).rpartition("/")[0] for each in locations] == [
        f"{uri.rpartition('/')[0]}/decisions" for uri in (one, two)
    ]
    assert set(read(tmp_path / "one")) == {("c1", "D-1"), ("c1", "D-2")}
    assert read(tmp_path / "two") == {
        ("c1", "D-1"): {
            "framework": "DORA",
            "text_sha256": "",
            "expert": "e-1",
            "expert_category": "SUFFICIENTLY_REGULATED",
            "expert_rationale": "Annex 4.",
            "decided_at": "2026-03-01T09:00:00+00:00",
            "category_before": "MISSING",
            "is_single": True,
        }
    }
    write(*rows[:1])  # a later attempt replaces what it has written
    assert set(read(tmp_path / "one")) == {("c1", "D-1")}


def test_an_answer_without_decisions_counts_instead_of_an_earlier_one(tmp_path: Path) -> None:
    shards = [assessed(tmp_path, shard=shard) for shard in ("a", "b")]
    nights = EarlierNights(Location(f"file://{tmp_path}"), "review", Night(NIGHT, "d/r1"), TaskKey.of(ti()))

    def answer(*decided: str) -> Location:
        (written,) = write(*(decision(uri, decision=one) for uri, one in zip(shards, decided, strict=True)))
        return written

    first = answer("expired", "expired")
    assert nights.own is None  # a form that no one has answered may be answered later
    second = answer("none", "changed")
    assert (second.path, first.size()) != (first.path, None)  # evidence may name the first
    assert set(read(tmp_path)) == {("c1", "D-1")}
    answer("none", "none")
    assert read(tmp_path) == {}


@pytest.mark.parametrize("below", ["dt=2026-03-01/findings.jsonl", "dt=2026-03-01/a/findings.jsonl"])
def test_root_is_found_above_findings(tmp_path: Path, below: str) -> None:
    assessed(tmp_path)
    assert find_root(f"file://{tmp_path}/{below}", NIGHT) == f"file://{tmp_path}"
    assert find_root("file:///nowhere/findings.jsonl", NIGHT) == ""


def test_below_a_prefix_each_task_has_a_file_and_an_object_is_replaced(tmp_path: Path) -> None:
    prefix, path = f"file://{tmp_path}/d/", tmp_path / "decisions.jsonl"
    rows = [decision()]
    (one,), (other,) = (write_decisions(rows, prefix, ti(run), "account") for run in ("r1", "r2"))
    assert [Path(location.path).name.rpartition("-")[0] for location in (one, other)] == [ti().task_id] * 2
    assert one.path != other.path
    for rows in ([decision()], []):
        (location,) = write_decisions(rows, str(path), ti(), "account")
        assert (location.path, len(path.read_text().splitlines())) == (str(path), len(rows))


def test_without_findings_and_without_a_destination_nothing_is_written(tmp_path: Path) -> None:
    assert write(decision()) == []
    assert write() == []


@pytest.mark.parametrize("night", [NEXT, "", "../../../x"])
def test_findings_that_no_night_has_published_cost_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, night: str
) -> None:
    assert write(decision(assessed(tmp_path), night=night)) == []
    assert caplog.text.count("Later nights will not find decisions on") == 1


def test_a_store_that_is_down_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = assessed(tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(type(Location(uri).fs), "ls", fail)
    with pytest.raises(exc.ComplianceStorageError):
        write(decision(uri))


def test_only_decisions_of_earlier_nights_are_read(tmp_path: Path) -> None:
    assert read(tmp_path) == {}
    uri = assessed(tmp_path)
    write(decision(uri), decision(uri, cell="other"))
    assert set(read(tmp_path)) == {("c1", "D-1"), ("other", "D-1")}
    assert read_decisions(nights_of(tmp_path, NEXT, "d/r1")) == {}  # of its own run
    for night in (NIGHT, "2026-02-01T00:00:00+00:00", "2027-05-01T00:00:00+00:00"):
        assert read(tmp_path, night) == {}


def test_a_cleared_night_sees_the_decisions_that_its_first_attempt_saw(tmp_path: Path) -> None:
    uri = assessed(tmp_path)
    write(decision(uri))
    nights = nights_of(tmp_path, NEXT)
    first = read_decisions(nights)
    nights.publish({}, ())
    late = decision(uri, decided_at="2026-03-02T09:00:00+00:00", answered_by="eve", expert_id="")
    write(late, task=ti("r1", "another"))
    assert read(tmp_path) == first
    assert read(tmp_path, LAST)["c1", "D-1"]["expert"] == "eve"


def test_the_latest_of_two_decisions_is_read(tmp_path: Path) -> None:
    uri = assessed(tmp_path)
    for hour, expert in (("10", "eve"), ("08", "ada")):
        late = {"decided_at": f"2026-03-01T{hour}:00:00+00:00", "expert_id": "", "answered_by": expert}
        write(decision(uri, **late), task=ti("r1", f"review-{expert}"))
    assert read(tmp_path)["c1", "D-1"]["expert"] == "eve"


@pytest.mark.parametrize("kind", ["none", "expired"])
def test_a_form_that_no_one_has_filled_in_decides_nothing(tmp_path: Path, kind: str) -> None:
    write(decision(assessed(tmp_path), decision=kind))
    assert read(tmp_path) == {}


def test_edited_decisions_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = assessed(tmp_path)
    (location,) = write(decision(uri))
    path = Path(location.path)
    path.write_text(path.read_text().replace("e-1", "e-2"))
    assert read(tmp_path) == {}
    assert "was changed after it was published" in caplog.text


def test_the_name_of_findings_never_forges_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    write_decisions([decision("findings\nERROR forged", night="")], None, ti(), "account")
    assert "'findings ERROR forged'" in caplog.text


@pytest.mark.parametrize("kind", ["none", "expired"])
def test_an_answer_after_a_form_that_no_one_filled_in_is_not_seen_by_nights_in_between(
    tmp_path: Path, kind: str
) -> None:
    findings = assessed(tmp_path)
    write(decision(findings, decision=kind))
    between = nights_of(tmp_path, NEXT)
    assert read_decisions(between) == {}
    between.publish({}, [])
    write(decision(findings))
    assert read(tmp_path) == {}  # the night in between, cleared
    assert read(tmp_path, "2026-12-24T00:00:00+00:00") != {}
