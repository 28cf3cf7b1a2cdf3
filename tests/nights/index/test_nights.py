"""What a night sees of others, and which of their rows it takes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.exceptions import ComplianceStorageDeniedError, ComplianceStorageError
from airflow_provider.nights.index import nights, ranges
from airflow_provider.nights.index.nights import EarlierNights, Entry, Night, Table, TaskKey, latest_rows
from airflow_provider.storage.jsonl import to_lines
from airflow_provider.storage.locations import Location, read_objects

TASK = TaskKey("dag", "ingest", "0")
DOCUMENTS = [f"{number}.pdf" for number in range(60)]


class Unlistable(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system with folders that can't be listed."""

    cachable = False

    def __init__(self, error: Exception, folder: str = "") -> None:
        super().__init__()
        self.error, self.folder = error, folder

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        if self.folder in path:
            raise self.error
        return super().ls(path, detail, **kwargs)


def reader(
    root: Path, at: str, run: str = "", task: TaskKey = TASK, account: str = "account"
) -> EarlierNights:
    return EarlierNights(Location(str(root)), "ingest", Night(at, run or at), task, account)


def shards(root: Path, at: str, sources: set[str], bits: int, run: str = "") -> list[EarlierNights]:
    """Return the readers of a night in shards, each with its documents."""
    groups: dict[int, set[str]] = {}
    for source in sources:
        groups.setdefault(ranges.hash_of(source) >> (ranges.HASH_BITS - bits), set()).add(source)
    night = Night(at, run or at)
    return [
        EarlierNights(Location(str(root)), "ingest", night, TaskKey("d", "i", str(n)), "account", group)
        for n, group in enumerate(groups.values())
    ]


def publish(earlier: EarlierNights, *sources: str) -> Entry:
    rows = [{"source": source, "night": earlier.night.at} for source in sources]
    name = earlier.night.run + "".join(vars(earlier.task).values())
    location, content = earlier.root / f"run={name}" / "manifest.jsonl", to_lines(rows)
    Path(location.path).parent.mkdir(parents=True, exist_ok=True)
    Path(location.path).write_bytes(content)
    return earlier.publish({"manifest": Table.of(location, content)}, sources)


def found(earlier: EarlierNights, *sources: str, **options: Any) -> dict[str, str]:
    entries = earlier.entries(**options)
    rows = latest_rows(entries, "manifest", set(sources), lambda row: row.get("source"))
    return {row["source"]: row["night"] for _, row in rows}


@pytest.mark.parametrize(
    ("at", "run", "same_time", "is_seen"),
    [
        ("2026-11-02T00:00:00+00:00", "other", False, True),
        ("2026-11-03T01:59:00+00:00", "other", False, True),  # the same day, but earlier
        ("2026-11-03T02:00:00+00:00", "other", False, False),
        ("2026-11-03T02:00:00+00:00", "other", True, True),
        ("2026-11-03T02:00:00.000001+00:00", "other", True, False),
        ("2026-11-04T00:00:00+00:00", "other", True, False),  # a backfill never uses data of later nights
        ("2026-11-02T00:00:00+00:00", "mine", True, False),  # the own run comes from its own manifest
        ("2025-09-29T00:00:00+00:00", "other", True, True),
        ("2025-09-28T23:59:00+00:00", "other", True, False),  # too long ago
    ],
)
def test_a_night_sees_earlier_nights_of_other_runs(
    tmp_path: Path, at: str, run: str, same_time: bool, is_seen: bool
) -> None:
    publish(reader(tmp_path, at, run), "a.pdf")
    own = reader(tmp_path, "2026-11-03T02:00:00+00:00", "mine")
    assert found(own, "a.pdf", same_time=same_time) == ({"a.pdf": at} if is_seen else {})
    if not same_time:
        assert found(own, "a.pdf") == ({"a.pdf": at} if is_seen else {})


def test_the_newest_row_of_each_key_counts_in_whichever_order_nights_run(tmp_path: Path) -> None:
    for day, sources in (("05", "a"), ("01", "abc"), ("03", "ab"), ("02", "bc")):
        publish(reader(tmp_path, f"2026-11-{day}"), *sources)
    expected = {"a": "2026-11-03", "b": "2026-11-03", "c": "2026-11-02"}
    for wanted in ("abcd", "abcdefghijk"):
        assert found(reader(tmp_path, "2026-11-04"), *wanted) == expected


def test_the_same_task_comes_first_then_what_was_written_last(tmp_path: Path) -> None:
    others = [TaskKey("dag", "other"), TASK, TaskKey("dag", "ingest", "1"), TaskKey("dag2", "ingest", "0")]
    for number, task in enumerate(others):
        publish(reader(tmp_path, "2026-11-01", f"run{number}", task), "a")
    publish(reader(tmp_path, "2026-10-31", task=TASK), "a")
    seen = [entry.task for entry in reader(tmp_path, "2026-11-02").entries()]
    assert seen == [others[2], others[1], others[3], others[0], TASK]


def test_a_cleared_run_sees_what_its_first_attempt_saw(tmp_path: Path) -> None:
    publish(reader(tmp_path, "2026-11-01"), "a", "b")
    first = reader(tmp_path, "2026-11-03")
    assert found(first, "a", "b") == {"a": "2026-11-01", "b": "2026-11-01"}
    publish(reader(tmp_path, "2026-11-02"), "a")  # while the first attempt runs
    published = publish(first, "a")
    again = reader(tmp_path, "2026-11-03")
    assert found(again, "a", "b") == {"a": "2026-11-01", "b": "2026-11-01"}
    replaced = publish(again, "a", "b")
    assert (replaced.published_at, replaced.read_at) == (published.published_at, published.read_at)
    third = reader(tmp_path, "2026-11-03")
    assert found(third, "a", "b") == {"a": "2026-11-01", "b": "2026-11-01"}
    assert found(reader(tmp_path, "2026-11-03", "another"), "a") == {"a": "2026-11-02"}
    assert found(reader(tmp_path, "2026-11-04"), "b") == {"b": "2026-11-03"}


def test_a_document_of_a_cleared_run_that_moves_to_another_shard_is_compared_as_before(
    tmp_path: Path,
) -> None:
    """Night 8 runs in two shards, night 7 is backfilled, and night 8 is cleared with other shards."""
    shards = [TaskKey("dag", "ingest", str(number)) for number in range(3)]
    other = TaskKey("dag", "other")
    publish(reader(tmp_path, "2026-11-06"), "a")
    for shard in shards[:2]:
        eighth = reader(tmp_path, "2026-11-08", task=shard)
        assert found(eighth, "a") == {"a": "2026-11-06"}
        publish(eighth, shard.instance)
    publish(reader(tmp_path, "2026-11-07"), "a")
    for shard in shards:
        assert found(reader(tmp_path, "2026-11-08", task=shard), "a") == {"a": "2026-11-06"}
    for task, run in ((other, "2026-11-08"), (shards[0], "another")):
        assert found(reader(tmp_path, "2026-11-08", run, task), "a") == {"a": "2026-11-07"}


def test_a_cleared_night_that_moves_a_document_to_a_new_shard_is_seen_as_before(tmp_path: Path) -> None:
    """Later nights have seen it before they are cleared, too."""
    shards = [TaskKey("dag", "ingest", str(number)) for number in range(2)]
    publish(reader(tmp_path, "2026-11-07", task=shards[0]), "a")
    later = reader(tmp_path, "2026-11-08", task=shards[0])
    assert found(later, "a") == {"a": "2026-11-07"}
    publish(later, "a")
    publish(reader(tmp_path, "2026-11-07", task=shards[0]), "b")
    publish(reader(tmp_path, "2026-11-07", task=shards[1]), "a")
    assert found(reader(tmp_path, "2026-11-08", task=shards[0]), "a") == {"a": "2026-11-07"}


@pytest.mark.parametrize("clock", ["2020-01-01T00:00:00.000000+00:00", "2099-01-01T00:00:00.000000+00:00"])
def test_a_wrong_clock_of_a_worker_hides_no_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(nights, "_now", lambda: clock)
        publish(reader(tmp_path, "2026-11-01"), "a")
    first = reader(tmp_path, "2026-11-02")
    assert found(first, "a") == {"a": "2026-11-01"}
    publish(first, "a")
    assert found(reader(tmp_path, "2026-11-02"), "a") == {"a": "2026-11-01"}  # cleared
    assert found(reader(tmp_path, "2026-11-03"), "a") == {"a": "2026-11-02"}


def test_a_task_that_runs_less_often_than_others_finds_its_own_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nights, "MAX_DATES", 3)
    monthly = TaskKey("monthly", "ingest")
    publish(reader(tmp_path, "2026-10-01", task=monthly), "a")
    publish(reader(tmp_path, "2026-10-02"), "b")  # of a task that is not its own, and too long ago
    for day in range(10, 20):
        publish(reader(tmp_path, f"2026-10-{day}"), f"c{day}")
    wanted = ["a", "b", "c16", "c17"]
    expected = {"a": "2026-10-01", "c17": "2026-10-17"}
    assert found(reader(tmp_path, "2026-11-01", task=monthly), *wanted) == expected


def test_shards_that_a_cleared_run_no_longer_has_do_not_count(tmp_path: Path) -> None:
    one, two = TaskKey("dag", "ingest", "1"), TaskKey("dag", "ingest", "2")
    publish(reader(tmp_path, "2026-11-01", task=one), "a")
    stale = publish(reader(tmp_path, "2026-11-01", task=two), "b")
    publish(reader(tmp_path, "2026-11-01", task=one), "a", "b")
    entries = list(reader(tmp_path, "2026-11-02", task=two).entries())
    rows = latest_rows(entries, "manifest", {"a", "b"}, lambda row: row["source"])
    assert {entry.task for entry, _ in rows} == {one}
    assert entries[-1].path == stale.path


def test_reading_stops_when_all_keys_are_found(tmp_path: Path) -> None:
    publish(reader(tmp_path, "2026-11-01"), "a")
    publish(reader(tmp_path, "2026-11-02"), "a")
    earlier = reader(tmp_path, "2026-11-03")
    earlier.root.fs = Unlistable(TimeoutError(), "2026-11-01")
    assert found(earlier) == {}
    assert found(earlier, "a") == {"a": "2026-11-02"}


@pytest.mark.parametrize(("source", "is_read"), [("a", True), ("b", False)])
def test_a_table_without_a_wanted_key_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, is_read: bool
) -> None:
    entry = publish(reader(tmp_path, "2026-11-01"), "a")
    Path(entry.location("manifest").path).unlink()
    assert found(reader(tmp_path, "2026-11-02"), source) == {}
    assert ("is gone" in caplog.text) is is_read


def test_a_table_that_was_edited_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    publish(reader(tmp_path, "2026-11-01"), "a")
    entry = publish(reader(tmp_path, "2026-11-02"), "a")
    table = Path(entry.location("manifest").path)
    table.write_bytes(table.read_bytes() + b"\n")
    assert found(reader(tmp_path, "2026-11-03"), "a") == {"a": "2026-11-01"}
    assert f"'{table}' was changed after it was published: not compared" in caplog.text


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda content: content[:-1], lambda content: content + b"0"]
)
def test_a_damaged_entry_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes]
) -> None:
    publish(reader(tmp_path, "2026-11-01"), "a")
    path = tmp_path / publish(reader(tmp_path, "2026-11-02"), "a").path
    path.write_bytes(damage(path.read_bytes()))
    assert found(reader(tmp_path, "2026-11-03"), "a") == {"a": "2026-11-01"}
    assert "Ignored the damaged entry" in caplog.text
    assert found(reader(tmp_path, "2026-11-02"), "a") == {"a": "2026-11-01"}  # also where it is the own one


def test_a_row_that_does_not_count_leaves_its_key_to_an_older_night(tmp_path: Path) -> None:
    publish(reader(tmp_path, "2026-11-01"), "a")
    publish(reader(tmp_path, "2026-11-02"), "a")
    entries = reader(tmp_path, "2026-11-03").entries()
    rows = latest_rows(
        entries, "manifest", {"a"}, lambda row: None if row["night"] == "2026-11-02" else row["source"]
    )
    assert [row["night"] for _, row in rows] == ["2026-11-01"]


@pytest.mark.parametrize(("account", "is_seen"), [("account", True), ("", True), ("other", False)])
def test_nights_of_another_account_do_not_count(tmp_path: Path, account: str, is_seen: bool) -> None:
    publish(reader(tmp_path, "2026-11-01"), "a")
    assert bool(found(reader(tmp_path, "2026-11-02", account=account), "a")) is is_seen


def test_a_night_without_the_table_is_passed_over(tmp_path: Path) -> None:
    publish(reader(tmp_path, "2026-11-01"), "a")
    reader(tmp_path, "2026-11-02").publish({}, "a")
    earlier = reader(tmp_path, "2026-11-03")
    assert found(earlier, "a") == {"a": "2026-11-01"}
    assert not list(next(iter(earlier.entries())).rows("manifest"))


def test_a_tree_can_be_moved(tmp_path: Path) -> None:
    publish(reader(tmp_path / "old", "2026-11-01"), "a")
    shutil.move(tmp_path / "old", tmp_path / "new")
    assert found(reader(tmp_path / "new", "2026-11-02"), "a") == {"a": "2026-11-01"}


def test_a_table_may_be_outside_of_the_root(tmp_path: Path) -> None:
    table = Location(str(tmp_path / "elsewhere.jsonl"))
    Path(table.path).write_bytes(content := to_lines([{"source": "a", "night": "x"}]))
    earlier = reader(tmp_path / "root", "2026-11-01")
    earlier.publish({"manifest": Table.of(table, content)}, "a", {"rate": 2.5})
    later = reader(tmp_path / "root", "2026-11-02")
    assert found(later, "a") == {"a": "x"}
    later.root.fs = Unlistable(TimeoutError(), "nowhere")
    [entry] = later.entries()
    assert entry.location("manifest").fs is later.root.fs
    assert (entry.account, entry.facts, entry.night) == ("account", {"rate": 2.5}, earlier.night)
    assert not list(later.entries("assess"))


def test_a_night_looks_back_over_a_limited_number_of_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nights, "MAX_DATES", 2)
    for day in range(1, 5):
        publish(reader(tmp_path, f"2026-11-{day:02}"), f"{day}")
    publish(reader(tmp_path, "2026-11-04T01", "second"), "5")
    assert set(found(reader(tmp_path, "2026-11-05"), *"12345")) == {"3", "4", "5"}
    review = EarlierNights(Location(str(tmp_path)), "review", Night("2026-11-05", "r"), TASK)
    assert set(found(review, *"12345", kind="ingest")) == {"3", "4", "5"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError("No."), ComplianceStorageDeniedError),
        (TimeoutError("Later."), ComplianceStorageError),
        (FileNotFoundError(), None),
    ],
)
def test_nights_that_cannot_be_listed_are_an_error_not_nothing(
    tmp_path: Path, error: Exception, expected: type[Exception] | None
) -> None:
    earlier = reader(tmp_path, "2026-11-01")
    earlier.root.fs = Unlistable(error)
    with pytest.raises(expected) if expected else nullcontext():
        assert not list(earlier.entries())


@given(st.sets(st.text(max_size=5), max_size=20), st.sets(st.text(max_size=5), max_size=20))
def test_an_entry_has_exactly_its_keys(keys: set[str], wanted: set[str]) -> None:
    hashes = b"".join(sorted(map(nights._hash, keys)))
    entry = Entry(Location("/r"), "ingest", Night("", ""), TASK, "", {}, "", "", "", keys=hashes)
    assert entry.may_contain(set(map(nights._hash, wanted))) == bool(keys & wanted)


def test_a_folder_with_the_name_of_an_entry_is_ignored(tmp_path: Path) -> None:
    entry = publish(reader(tmp_path, "2026-11-01"), "a")
    path = tmp_path / entry.path
    path.with_name(f"{path.name[:-8]}0000.txt").mkdir()
    assert found(reader(tmp_path, "2026-11-02"), "a") == {"a": "2026-11-01"}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from(DOCUMENTS), min_size=1), st.integers(0, 5)), min_size=1, max_size=6
    )
)
def test_each_document_is_found_whatever_the_shards_of_its_nights_were(
    history: list[tuple[set[str], int]],
) -> None:
    latest: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        for number, (sources, bits) in enumerate(history, 1):
            at = f"2026-11-{number:02}"
            for shard in shards(Path(folder), at, sources, bits):
                expected = {source: latest[source] for source in shard._sources if source in latest}
                assert found(shard, *shard._sources) == expected
                wanted = set(shard._sources)
                rows = latest_rows(shard.entries(sources=wanted), "manifest", wanted, itemgetter("source"))
                assert {row["source"]: row["night"] for _, row in rows} == expected
                publish(shard, *shard._sources)
            latest |= dict.fromkeys(sources, at)


def test_a_shard_reads_what_is_its_own_however_many_shards_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new document, which no night has, makes a shard look at all nights, but only at its own range."""
    documents = {f"s3://b/{number}.pdf" for number in range(2000)}
    for night in range(1, 6):
        for shard in shards(tmp_path, f"2026-11-{night:02}", documents, 6 if night < 4 else 5):
            publish(shard, *shard._sources)
    [first, *_] = shards(tmp_path, "2026-11-06", documents, 6)
    read = list[str]()

    def count(folder: Location, paths: list[str]) -> Any:
        read.extend(paths)
        return read_objects(folder, paths)

    monkeypatch.setattr("airflow_provider.nights.index.nights.read_objects", count)
    new = "s3://b/new.pdf"
    first._sources = {*first._sources, new}
    assert found(first, new) == {}
    assert len(read) == 5
    assert {path.split("/")[-2] for path in read} == {first.range.name, first.range.widen(5).name}


def test_an_attempt_with_other_documents_replaces_the_entry_of_the_one_before(tmp_path: Path) -> None:
    documents = [f"{number}.pdf" for number in range(64)]
    few = [source for source in documents if ranges.hash_of(source) >> 30 == 0]
    task = TaskKey("d", "t")
    for sources in (documents, few, documents):
        night = Night("2026-11-01", "r")
        nights_of = EarlierNights(Location(str(tmp_path)), "ingest", night, task, "account", sources)
        entry = publish(nights_of, *sources)
        assert [path.name for path in tmp_path.rglob("*.txt")] == [Path(entry.path).name]


@pytest.mark.parametrize(
    ("rates", "expected"), [([], None), ([0.0], None), ([1.0], 10), ([2.0, 0.0, 3.0], 4)]
)
def test_duration_is_estimated_from_the_mean_rate(rates: list[float], expected: int | None) -> None:
    assert nights.estimate_seconds(10, rates) == expected


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        ({"logical_date": "2026-11-02", "run_after": "2026-11-03"}, "2026-11-02"),
        ({"logical_date": None, "run_after": "2026-11-03", "queued_at": "2026-11-04"}, "2026-11-03"),
        ({"queued_at": "2026-11-04"}, "2026-11-04"),
    ],
)
def test_the_night_is_the_logical_date_else_when_the_run_was_due(
    dates: dict[str, Any], expected: str
) -> None:
    from datetime import datetime

    run = SimpleNamespace(
        **{name: at and datetime.fromisoformat(f"{at}T01:00+02:00") for name, at in dates.items()}
    )
    night = Night.of({"dag_run": run, "ti": SimpleNamespace(dag_id="dag", run_id="run")})
    before = f"{expected[:-1]}{int(expected[-1]) - 1}"
    assert (night.at, night.run) == (f"{before}T23:00:00+00:00", "dag/run")
    assert night.days_since("2026-10-31T09:00") == int(before[-2:])
