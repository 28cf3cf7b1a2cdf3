from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.nights.evidence import verifier
from airflow_provider.nights.evidence.verifier import Folder, Verifier
from airflow_provider.storage.locations import Location
from tests.support.nights import NightWriter, rewrite, sha256

NIGHTS = 5


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five nights with three documents each."""
    root = tmp_path / "out"
    writer = NightWriter(Location(f"file://{root}"))
    for day in range(1, NIGHTS + 1):
        writer.night(day)
    return root


def record(root: Path, number: int) -> Path:
    return root / f"_evidence/nights/{number:08}.json"


Verify = Callable[..., tuple[int, str]]


@pytest.fixture
def verify(root: Path, capsys: pytest.CaptureFixture[str]) -> Verify:
    def run(*arguments: object, uri: object = root) -> tuple[int, str]:
        code = main(["verify", str(uri), *map(str, arguments)])
        output, errors = capsys.readouterr()
        return code, output + errors

    return run


def statuses(output: str) -> list[str]:
    """Return the word at the start of each line of a night."""
    return re.findall(r"(?m)^(OK|REPLACED|CHANGED|UNREADABLE|STOPPED)\b", output)


def test_unchanged_nights_are_good(verify: Verify) -> None:
    code, output = verify()
    assert code == 0
    assert statuses(output) == ["OK"] * NIGHTS
    # Each night: three tables, three texts, results, report.
    assert "5 records, 40 objects, 0.0 MB in" in output
    assert "objects/s" in output
    assert "5 records: everything is as recorded." in output


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def only(root: Path, pattern: str) -> Path:
    (path,) = sorted(root.glob(pattern))[:1]
    return path


OBJECTS = {
    "text": "dt=2026-01-03/document-1.txt",
    "results": "dt=2026-01-03/_assess/results/1.json",
    "table": "dt=2026-01-03/_tables/ingest.jsonl",
    "salts": "dt=2026-01-03/_tables/ingest.jsonl.*.salts",
    "digests": "_evidence/digests/{digests}.txt",
    "report": "dt=2026-01-03/_night/report-*.html",
    "record": "_evidence/nights/00000003.json",
}


@pytest.mark.parametrize("pattern", OBJECTS.values(), ids=OBJECTS)
@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink])
def test_every_object_that_is_damaged_is_found_and_named(
    root: Path, verify: Verify, damage: Callable[[Path], None], pattern: str
) -> None:
    digests = json.loads(record(root, 3).read_bytes())["manifests"][0]["digests"]
    path = only(root, pattern.format(digests=digests))
    damage(path)
    named = path.name.partition(".jsonl")[0] if damage is not Path.unlink else path.name
    code, output = verify()
    assert code == 1
    (first, *_) = re.findall("(?m)^    [a-z]+: (.*)$", output)
    if pattern == OBJECTS["record"]:
        number = 4 if damage is Path.unlink else 3  # what is missing is said where the next one is
        assert statuses(output).count("CHANGED") == 1
        assert f"CHANGED        {number} " in output
        assert "record 3" in first or path.name in first
    else:
        assert statuses(output) == ["OK", "OK", "CHANGED", "OK", "OK"]
        assert f"{path.parent}/{named}" in first
        assert ("does not exist" if damage is Path.unlink else "has changed") in first
        assert re.search("(?m)^1 problem: 1 (changed|missing)$", output)


def test_every_text_that_is_gone_is_counted_but_not_shown(tmp_path: Path, verify: Verify) -> None:
    writer = NightWriter(Location(f"file://{tmp_path}/many"), documents=200)
    writer.night(1)
    for path in (tmp_path / "many/dt=2026-01-01").glob("*.txt"):
        path.unlink()
    code, output = verify(uri=tmp_path / "many")
    assert code == 1
    assert "200 problems: 200 missing; 150 are not shown" in output
    assert output.count("does not exist") == 50


def test_two_nights_that_were_swapped_are_named(root: Path, verify: Verify) -> None:
    two, three = record(root, 2).read_bytes(), record(root, 3).read_bytes()
    record(root, 2).write_bytes(three)
    record(root, 3).write_bytes(two)
    code, output = verify()
    assert code == 1
    assert statuses(output) == ["OK", "CHANGED", "CHANGED", "OK", "OK"]
    assert "00000002.json says that it is record 3" in output
    assert "00000003.json says that it is record 2" in output


def head_of(root: Path) -> str:
    return sha256(record(root, NIGHTS).read_bytes())


CLEARED = "If a task was cleared"


def test_the_last_record_is_compared_with_a_hash_that_was_kept_elsewhere(root: Path, verify: Verify) -> None:
    kept = head_of(root)
    assert verify("--head", kept.upper())[0] == 0
    rewrite(record(root, NIGHTS), closed_at="later")
    assert verify()[0] == 0  # nothing else tells
    code, output = verify("--head", kept)
    assert code == 1
    assert f"the last record has SHA-256 {head_of(root)}, not {kept}" in output
    record(root, NIGHTS).unlink()
    assert verify()[0] == 0
    assert verify("--head", kept)[0] == 1


def test_an_older_hash_proves_that_the_chain_was_not_rewritten(root: Path, verify: Verify) -> None:
    kept = head_of(root)
    NightWriter(Location(f"file://{root}")).night(9)
    code, output = verify("--head", kept)
    assert (code, f"not {kept}" in output, "--contains" in output) == (1, True, True)
    assert verify("--contains", kept)[0] == 0
    shutil.rmtree(root)
    writer = NightWriter(Location(f"file://{root}"))
    for day in range(1, NIGHTS + 1):
        writer.night(day, closed_at="rewritten")
    assert verify()[0] == 0
    code, output = verify("--contains", kept)
    assert (code, statuses(output)[-1]) == (1, "CHANGED")
    assert f"no record has SHA-256 {kept}" in output


def test_a_hash_that_does_not_match_says_what_to_check(root: Path, verify: Verify) -> None:
    for arguments in (("--head", "0" * 64), ("--contains", "0" * 64)):
        code, output = verify(*arguments)
        assert (code, statuses(output)[:-1]) == (1, ["OK"] * (NIGHTS - 1))
        assert "1 problem: 1 unmatched\n" in output
        assert "If a later night was closed since, use --contains" in output
        assert "check the hash and the root" in output


def test_a_copy_in_another_place_is_verified_there(root: Path, verify: Verify, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    shutil.rmtree(root)
    assert verify(uri=copy)[0] == 0
    flip(copy / OBJECTS["text"])
    code, output = verify(uri=f"file://{copy}/")
    assert code == 1
    assert f"{copy}/dt=2026-01-03/document-1.txt has changed" in output


def test_a_tree_that_was_moved_is_verified_with_nights_that_refer_to_its_old_place(
    tmp_path: Path, verify: Verify
) -> None:
    old, new = tmp_path / "nights", tmp_path / "nights/moved"  # into a folder of its own
    writer = NightWriter(Location(f"file://{old}"))
    first = writer.assess(1)
    writer.close(1, [("ingest", writer.ingest(1)), ("assess", first)])
    shutil.copytree(old, tmp_path / "copy")
    shutil.rmtree(old)
    shutil.copytree(tmp_path / "copy", new)
    writer = NightWriter(Location(f"file://{new}"))
    writer.close(2, [("ingest", writer.ingest(2)), ("assess", writer.assess(2, carried=first))])
    assert verify(uri=new)[0] == 0
    flip(new / "dt=2026-01-01/_assess/results/1.json")
    assert statuses(verify(uri=new)[1]) == ["CHANGED", "CHANGED"]


def test_a_skipped_document_is_verified_with_the_night_that_wrote_it(tmp_path: Path, verify: Verify) -> None:
    root = tmp_path / "skipped"
    writer = NightWriter(Location(f"file://{root}"))
    first, results = writer.ingest(1), writer.assess(1)
    writer.close(1, [("ingest", first), ("assess", results)])
    second = writer.ingest(2, skipped=first[:2])
    writer.close(2, [("ingest", second), ("assess", writer.assess(2, carried=results))])
    _, output = verify("--json", uri=root)
    nights = [json.loads(line) for line in output.splitlines()]
    # The second night has one text of its own, two manifests and the report.
    assert [night.get("objects") for night in nights[:2]] == [7, 4]
    # Without the first night, it answers for all that it refers to.
    _, output = verify("--json", "--since", "2026-01-02", uri=root)
    nights = [json.loads(line) for line in output.splitlines()]
    assert [(night["objects"], night["record_only"]) for night in nights[:2]] == [(0, True), (7, False)]
    flip(root / "dt=2026-01-01/document-0.txt")
    (root / "dt=2026-01-01/_assess/results/1.json").unlink()
    for since in ((), ("--since", "2026-01-02")):
        code, output = verify(*since, uri=root)
        assert code == 1
        assert statuses(output)[1] == "CHANGED"
        assert statuses(output)[0] == ("OK" if since else "CHANGED")
        assert "document-0.txt" in output
        assert "results/1.json" in output


def test_every_revision_verifies_for_ever(tmp_path: Path, verify: Verify) -> None:
    """Whatever is closed again, in whichever order; and a table that is written over is a change."""
    root = tmp_path / "revised"
    writer = NightWriter(Location(f"file://{root}"))
    records = [writer.close(1, [("ingest", writer.ingest(1))])]
    for name in ("again", "document", "third"):
        writer.name = name
        before = records[-1].reference
        records.append(writer.close(1, [("ingest", writer.ingest(1))], replaces=before))
    noted = [argument for one in records for argument in ("--contains", one.sha256[:8])]
    code, output = verify(*noted, uri=root)
    assert (code, statuses(output)) == (0, ["OK"] * 4)
    assert "revision" in output
    table = root / records[0].record["manifests"][0]["path"]
    table.write_bytes(table.read_bytes().replace(b"document-1", b"document-x"))
    assert verify(uri=root)[0] == 1


def test_a_destination_with_an_empty_name_in_it_is_below_the_root(tmp_path: Path, verify: Verify) -> None:
    """As `{{ root }}/dt=…` gives for a root with a slash at its end."""
    writer = NightWriter(Location(f"file://{tmp_path}/a/"))
    writer.destination = lambda day: Location(f"file://{tmp_path}/a//dt={day}")  # type: ignore[method-assign]  # a stand-in
    writer.night(1)
    assert statuses(verify(uri=tmp_path / "a")[1]) == ["OK"]
    flip(tmp_path / "a/dt=1/document-0.txt")
    assert statuses(verify(uri=tmp_path / "a")[1]) == ["CHANGED"]


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_objects_of_replaced_revisions_are_compared(
    tmp_path: Path, verify: Verify, damage: Callable[[Path], None]
) -> None:
    root = tmp_path / "revised"
    writer = NightWriter(Location(f"file://{root}"))
    first = writer.close(1, [("ingest", writer.ingest(1))])
    second = writer.close(1, [], replaces=first.reference)  # closed again without documents
    writer.close(1, [], replaces=second.reference)
    assert statuses(verify(uri=root)[1]) == ["OK"] * 3
    damage(root / "dt=2026-01-01/document-1.txt")
    code, output = verify(uri=root)
    assert (code, statuses(output)) == (1, ["CHANGED", "OK", "OK"])


def test_nights_before_a_date_are_verified_as_a_chain_only(root: Path, verify: Verify) -> None:
    flip(root / OBJECTS["text"])
    assert verify("--since", "2026-01-03")[0] == 1
    code, output = verify("--since", "2026-01-04")
    assert code == 0
    assert output.count("record only") == 3
    rewrite(record(root, 2), closed_at="changed")
    assert verify("--since", "2026-01-04")[0] == 1


def test_a_night_without_a_valid_date_is_always_verified(tmp_path: Path, verify: Verify) -> None:
    root = tmp_path / "odd"
    writer = NightWriter(Location(f"file://{root}"))
    for night in ("", "9999999", None, ["x"]):
        writer.night(1, night=night)
    flip(root / "dt=2026-01-01/document-0.txt")
    code, output = verify("--since", "2026-02-01", uri=root)
    assert (code, statuses(output)) == (1, ["CHANGED"] * 4)


def test_json_has_a_line_for_each_night_and_the_totals(root: Path, verify: Verify) -> None:
    flip(root / OBJECTS["text"])
    code, output = verify("--json")
    *nights, last = [json.loads(line) for line in output.splitlines()]
    assert [night["record"] for night in nights] == [1, 2, 3, 4, 5]
    assert [night["status"] for night in nights] == ["OK", "OK", "CHANGED", "OK", "OK"]
    assert nights[2]["night"] == "2026-01-03T00:00:00+00:00"
    assert nights[2]["problems"][0]["kind"] == "changed"
    totals = last["totals"]
    assert (totals["nights"], totals["objects"], totals["exit_code"]) == (5, 39, 1) == (5, 39, code)
    assert totals["head"] == head_of(root)
    assert totals["problems"] == {"changed": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--since", "yesterday"),
        ("--since", "2026-13-01"),
        ("--head", "abc"),
        ("--contains", "g" * 64),
        ("--threads", "0"),
        ("--threads", "x"),
        ("--unknown",),
    ],
)
def test_wrong_usage_ends_with_2(verify: Verify, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        verify(*arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize("uri", ["dt=2026-01-01/", "_evidence/nights/00000003.json", "_evidence"])
def test_a_uri_of_a_log_leads_to_the_root(root: Path, verify: Verify, uri: str) -> None:
    assert statuses(verify(uri=f"{root}/{uri}")[1]) == ["OK"] * NIGHTS


@pytest.mark.parametrize("uri", ["/nowhere/at=all", "/nowhere/at/all", "nosuchstore://x/y", "s3://", ""])
def test_a_place_without_nights_ends_with_2(root: Path, verify: Verify, uri: str) -> None:
    code, output = verify(uri=uri.format(root=root))
    assert code == 2
    assert output.startswith("error: ")
    assert "Traceback" not in output


def test_the_example_of_the_format_is_right(tmp_path: Path) -> None:
    page = Path("docs/evidence-format.md").read_text()
    table, salts, digests = (text.encode() for text in re.findall(r"```text\n(.*?)```", page, re.S)[-3:])
    (named,) = re.findall("SHA-256 of that list is `([0-9a-f]{64})`", page)
    listed = {"kind": "review", "path": "t.jsonl", "salts": "t.salts", "digests": named}
    files = {"t.jsonl": table, "t.salts": salts, f"_evidence/digests/{named}.txt": digests}
    files["_evidence/nights/00000001.json"] = json.dumps(
        {"number": 1, "version": 3, "manifests": [listed]}
    ).encode()
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (check,) = Verifier(Folder(str(tmp_path))).run()
    assert (check.status, check.manifests) == ("OK", 1)


def test_hash_of_the_verifier_is_in_the_guide() -> None:
    sha256 = hashlib.sha256(Path(verifier.__file__).read_bytes()).hexdigest()
    assert sha256 in Path("docs/audit.md").read_text()


@pytest.mark.parametrize("version", [None, 2, "3"])
def test_record_without_the_version_of_the_format_is_refused(
    root: Path, verify: Verify, version: object
) -> None:
    path = root / "_evidence/nights/00000003.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": version}))
    code, output = verify()
    assert (code, "unknown version" in output) == (1, True)


def test_only_ascii_digits_name_a_record(root: Path, verify: Verify) -> None:
    (root / "_evidence/nights/0000000\u0665.json").write_text("{}")
    assert statuses(verify()[1]) == ["OK"] * NIGHTS


def test_rows_that_are_absent_are_missing(root: Path, verify: Verify) -> None:
    """A dash instead of a salt says that the rows of a document are not there; it does not excuse that."""
    table, salts = (
        root / "dt=2026-01-03/_tables/ingest.jsonl",
        only(root, "dt=2026-01-03/_tables/ingest.jsonl.*.salts"),
    )
    _, *rows = table.read_bytes().splitlines(keepends=True)
    _, *others = salts.read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join(rows))
    salts.write_bytes(b"".join([b"-\n", *others]))
    code, output = verify()
    assert code == 1
    assert statuses(output) == ["OK", "OK", "CHANGED", "OK", "OK"]
    assert "missing: dt=2026-01-03/_tables/ingest.jsonl lacks the rows of 1 document" in output


@pytest.mark.parametrize(
    ("folder", "problem"),
    [("nowhere", "is nothing"), ("empty", "are no closed nights"), ("other", "are no closed nights")],
)
def test_wrong_folder_is_told_from_an_empty_one(
    tmp_path: Path, verify: Verify, capsys: pytest.CaptureFixture[str], folder: str, problem: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other/_evidence/nights").mkdir(parents=True)
    (tmp_path / "other/_evidence/nights/notes.json").write_text("{}")
    code, output = verify(uri=tmp_path / folder)
    assert (code, f"There {problem} at" in output) == (2, True)
    with pytest.raises(SystemExit) as ended:
        verifier.main([str(tmp_path / folder)])
    assert ended.value.code == 2
    words = "does not exist" if folder == "nowhere" else "has no closed nights"
    assert f"'{tmp_path / folder}' {words}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("dt=2026-01-99", ()),  # does not exist
        ("", ("--since", "2026/11/01")),
        ("", ("--since", "2026-13-01")),
        ("", ("--since", "yesterday")),
        ("", ("--head", "abc")),
        ("", ("--ca", "nowhere.pem")),
    ],
)
def test_wrong_usage_of_the_file_alone_is_an_error(root: Path, place: str, options: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        verifier.main([str(root / place), *options])
    assert ended.value.code == 2
