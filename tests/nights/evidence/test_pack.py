"""An audit pack has what the nights say about some documents, proves it, and has nothing about others."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.nights.evidence import verifier
from airflow_provider.nights.evidence.holds import place_hold
from airflow_provider.storage.locations import Location
from tests.nights.evidence.erasable import ANNA, BERT, Tree
from tests.support.nights import Nights, NightWriter

NIGHTS, DOCUMENTS = 3, 12
Pack = Callable[..., tuple[int, str]]


def source(number: int) -> str:
    return f"file:///in/document-{number}.pdf"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Nights with a text, a finding and a decision for each document."""
    root = tmp_path / "out"
    writer = NightWriter(Location(f"file://{root}"), documents=DOCUMENTS)
    for day in range(1, NIGHTS + 1):
        write_night(writer, day)
    return root


def write_night(writer: NightWriter, day: int, **record: Any) -> None:
    ingested = writer.ingest(day)
    cells, findings, decisions = [], [], []
    for number in range(writer.documents):
        name = ingested[number]["source"]
        results = writer.put(writer.destination(day) / f"r/{number}.json", b'{"is": "%d/%d"}' % (day, number))
        named = {"results_path": results["uri"], "results_sha256": results["sha256"]}
        cell = {"source": name, "framework": "DORA"}
        cells.append({**cell, "status": "COMPLETED", **named, "carried_from": None})
        verdict = {"category": "MISSING", "rationale": f"<b>because {number}</b>"}
        findings += [{**cell, "criterion": n, **verdict} for n in (1, 2)]
        decisions.append({"source": name, "decision": "agreed", "expert_id": f"expert-{number}"})
    tables = [("ingest", ingested), ("assess", cells), ("findings", findings), ("review", decisions)]
    writer.close(day, tables, **record)


@pytest.fixture
def pack(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pack:
    def run(*arguments: object, output: str = "pack.zip") -> tuple[int, str]:
        told = ["--head", last_hash(root)] if "--sample" in arguments else []
        code = main(["pack", str(root), "-o", str(tmp_path / output), *told, *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def last_hash(root: Path) -> str:
    """Return what an auditor notes before choosing a seed."""
    return hashlib.sha256(max((root / "_evidence/nights").glob("*.json")).read_bytes()).hexdigest()


def unpack(tmp_path: Path, name: str = "pack.zip") -> Path:
    with zipfile.ZipFile(tmp_path / name) as file:
        file.extractall(tmp_path / "bag")
    return tmp_path / "bag"


def verify(bag: Path, *arguments: str) -> tuple[int, str]:
    with redirect_stdout(StringIO()) as output:
        code = verifier.main([str(bag / "data"), *arguments])
    return code, output.getvalue()


def test_pack_has_all_about_a_document_and_proves_it(pack: Pack, tmp_path: Path, root: Path) -> None:
    code, output = pack("--source", source(3))
    assert (code, re.findall("(?m)^[A-Z]+", output)) == (0, ["PARTIAL"] * NIGHTS + ["L", "R"]), output
    bag = unpack(tmp_path)
    subprocess.run(["sha256sum", "--strict", "-c", "manifest-sha256.txt"], cwd=bag, check=True)
    subprocess.run(["sha256sum", "--strict", "-c", "tagmanifest-sha256.txt"], cwd=bag, check=True)
    # As an auditor does, with nothing but Python.
    command = [sys.executable, "-I", "-S", "data/verifier.py", "--pack", "data"]
    output = subprocess.run(command, cwd=bag, capture_output=True, text=True, check=True).stdout
    # Each night: four tables, the text and the results.
    assert "3 records, 18 objects" in output
    assert "what was read is as recorded, all else is not known" in output
    assert len(list((bag / "data/objects").iterdir())) == 2 * NIGHTS
    assert not list(bag.rglob("*.html"))  # nothing proves what a page says


@pytest.mark.parametrize("chosen", [["--source", source(3)], ["--sample", "3", "--seed", "a seed"]])
def test_pack_is_a_bag_for_another_implementation(pack: Pack, tmp_path: Path, chosen: list[str]) -> None:
    bagit = pytest.importorskip("bagit", reason="this test needs bagit, which 'make' installs")
    assert pack(*chosen)[0] == 0
    bag = bagit.Bag(str(unpack(tmp_path)))
    bag.validate()  # of names, sizes and hashes, nothing is missing or too much
    payload = [path for path in (tmp_path / "bag/data").rglob("*") if path.is_file()]
    assert bag.version_info == (1, 0)
    assert bag.info["Payload-Oxum"] == f"{sum(path.stat().st_size for path in payload)}.{len(payload)}"


def test_pack_has_nothing_about_other_documents(pack: Pack, tmp_path: Path, root: Path) -> None:
    assert pack("--source", source(3))[0] == 0
    bag = unpack(tmp_path)
    content = b"".join(path.read_bytes() for path in sorted(bag.rglob("*")) if path.is_file())
    names = "\n".join(str(path.relative_to(bag)) for path in sorted(bag.rglob("*")))
    assert b"document-3.pdf" in content
    assert "document" not in names
    for number in set(range(DOCUMENTS)) - {3}:
        for text in (f"document-{number}.", f"document {number}.", f"because {number}<", f'expert-{number}"'):
            assert text.encode() not in content, text
    kept = {line for path in bag.rglob("*.salts") for line in path.read_bytes().splitlines()} - {b"-"}
    assert len(kept) == 4 * NIGHTS


@pytest.mark.parametrize("pattern", ["objects/*.txt", "tables/*.jsonl", "tables/*.salts", "_evidence/*/*"])
def test_verifier_finds_what_was_changed_in_a_pack(pack: Pack, tmp_path: Path, pattern: str) -> None:
    pack("--source", source(3))
    bag = unpack(tmp_path)
    head = json.loads((bag / "data/pack.json").read_text())["head"]
    for path in sorted((bag / "data").glob(pattern)):
        data = path.read_bytes()
        path.write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
        assert verify(bag, "--pack", "--head", head)[0] == 1, path
        path.write_bytes(data)
    assert verify(bag, "--pack", "--head", head)[0] == 0
    next((bag / "data/objects").iterdir()).unlink()
    assert verify(bag, "--pack")[0] == 1


def test_pack_without_the_option_is_not_complete_evidence(pack: Pack, tmp_path: Path) -> None:
    pack("--source", source(3))
    assert verify(unpack(tmp_path))[0] == 1


def test_tree_is_not_a_pack(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the option nothing of it would be read."""
    (root / "dt=2026-01-02/document-3.txt").unlink()
    assert main(["verify", str(root)]) == 1
    assert main(["verify", str(root), "--json"]) == 1
    assert "--pack" not in capsys.readouterr().out
    for option in ((), ("--json",)):
        assert main(["verify", str(root), "--pack", *option]) == 1
    assert "pack.json names no documents" in capsys.readouterr().out


def test_same_input_gives_the_same_bytes(pack: Pack, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        pack("--sample", 5, "--seed", 7, output=name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    pack("--sample", 5, "--seed", 8, output="c.zip")
    assert (tmp_path / "c.zip").read_bytes() != (tmp_path / "a.zip").read_bytes()


def test_sample_can_be_checked_with_the_pack_alone(pack: Pack, tmp_path: Path) -> None:
    """All blocks with a rank below that of the last document are there, so none was left out."""
    assert pack("--sample", 10, "--seed", 7, "--from", "2026-01-02", "--to", "2026-01-03")[0] == 0
    data = unpack(tmp_path) / "data"
    said = json.loads((data / "pack.json").read_text())
    assert said["head"] == hashlib.sha256((data / "_evidence/nights/00000003.json").read_bytes()).hexdigest()
    ranked = []
    for number in (2, 3):
        record = json.loads((data / f"_evidence/nights/{number:08}.json").read_text())
        (table,) = [table["digests"] for table in record["manifests"] if table["kind"] == "ingest"]
        digests = [
            block[1].decode()
            for block in verifier.BLOCK.finditer((data / f"_evidence/digests/{table}.txt").read_bytes())
        ]
        rows = iter((data / f"tables/{table}.jsonl").read_text().splitlines())
        salts = (data / f"tables/{table}.salts").read_text().splitlines()
        for digest, salt in zip(digests, salts, strict=True):
            rank = hashlib.sha256(f"{said['head']} 7 {digest}".encode()).hexdigest()
            ranked.append((rank, None if salt == "-" else json.loads(next(rows))["source"]))
    drawn: list[str | None] = []
    for _, name in sorted(ranked, key=lambda one: one[0]):
        if len(drawn) < 10:
            drawn += [name] if name not in drawn else []
    assert drawn == [document["source"] for document in said["documents"]]
    assert None not in drawn
    assert len(list((data / "tables").iterdir())) == 2 * 4 * 2  # of two nights


def test_document_that_was_drawn_can_not_be_left_out(pack: Pack, tmp_path: Path) -> None:
    assert pack("--sample", 3, "--seed", 7)[0] == 0
    bag = unpack(tmp_path)
    assert verify(bag, "--pack")[0] == 0
    said = json.loads((bag / "data/pack.json").read_text())
    gone = said["documents"].pop()["source"]
    for salts in (bag / "data/tables").glob("*.salts"):
        table = salts.with_suffix(".jsonl")
        lines, kept = table.read_text().splitlines(keepends=True), []
        present = iter(itertools.groupby(lines, lambda line: json.loads(line).get("source")))
        for salt in salts.read_text().splitlines(keepends=True):
            name, block = next(present) if salt != "-\n" else ("", iter(()))
            rows = list(block)
            kept.append("-\n" if name == gone else salt)
            lines = [line for line in lines if line not in rows or name != gone]
        salts.write_text("".join(kept))
        table.write_text("".join(lines))
    for documents in (said["documents"], [*said["documents"], {"source": gone}]):
        (bag / "data/pack.json").write_text(json.dumps({**said, "documents": documents}))
        code, output = verify(bag, "--pack")
        assert (code, "drawn" in output or "not in the pack" in output) == (1, True), output
    for wrong in ({"seed": "8"}, {"head": "0" * 64}, {"sample": 4}):
        (bag / "data/pack.json").write_text(json.dumps({**said, **wrong}))
        assert verify(bag, "--pack")[0] == 1


def test_what_is_added_after_the_head_was_told_changes_no_sample(
    pack: Pack, tmp_path: Path, root: Path
) -> None:
    head = last_hash(root)
    place_hold(Location(f"file://{root}"), "*/none", "After the seed was told", "the maker")
    drawn = []
    for number in range(2):
        assert pack("--sample", 3, "--head", head, output=f"{number}.zip")[0] == 0
        bag = unpack(tmp_path, f"{number}.zip")
        drawn.append(json.loads((bag / "data/pack.json").read_text())["documents"])
        assert verify(bag, "--pack", "--head", head)[0] == 0
        assert verify(bag, "--pack", "--head", last_hash(root))[0] == 0  # the last record, as always
        assert verify(bag, "--pack", "--head", "0" * 8)[0] == 1
        place_hold(Location(f"file://{root}"), "*/other", "Another one", "the maker")
        if number == 0:
            shutil.rmtree(bag)
    assert drawn[0] == drawn[1]
    code, output = pack("--sample", 3, "--head", "0" * 64, output="c.zip")
    assert (code, "No record has the SHA-256" in output) == (2, True)


def test_sample_larger_than_the_population_has_all(pack: Pack, tmp_path: Path) -> None:
    assert pack("--sample", 100)[0] == 0
    said = json.loads((unpack(tmp_path) / "data/pack.json").read_text())
    assert len(said["documents"]) == DOCUMENTS + 1  # one has failed


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Give either --sample or --source."),
        (("--sample", 1, "--source", source(1)), "Give either --sample or --source."),
        (("--source", "file:///in/other.pdf"), "has 'file:///in/other.pdf': give the source as tables"),
        (("--sample", 3, "--from", "2027-01-01"), "No night of this period has a document"),
    ],
)
def test_nothing_is_written_without_documents(
    pack: Pack, tmp_path: Path, arguments: tuple[object, ...], problem: str
) -> None:
    code, output = pack(*arguments)
    assert (code, problem in output) == (2, True), output
    assert not [path for path in tmp_path.iterdir() if "pack" in path.name]


def test_existing_file_is_never_overwritten(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "pack.zip").write_text("good")
    code, output = pack("--sample", 3)
    assert (code, "exists: choose another name" in output) == (2, True)
    assert (tmp_path / "pack.zip").read_text() == "good"


def test_changed_text_is_reported_and_left_out(pack: Pack, tmp_path: Path, root: Path) -> None:
    (root / "dt=2026-01-02/document-3.txt").write_text("forged")
    code, output = pack("--source", source(3))
    assert code == 1
    assert "document-3.txt has changed" in output
    bag = unpack(tmp_path)
    assert "document-3.txt has changed" in (bag / "data/pack.json").read_text()
    assert not [path for path in (bag / "data/objects").iterdir() if path.read_bytes() == b"forged"]
    assert verify(bag, "--pack")[0] == 1


def test_changed_row_of_another_document_hides_none(pack: Pack, tmp_path: Path, root: Path) -> None:
    table = root / "dt=2026-01-02/_tables/ingest.jsonl"
    table.write_text(table.read_text().replace("document-5.pdf", "document-x.pdf"))
    code, output = pack("--source", source(3))
    assert (code, "ingest.jsonl has changed: see line 6" in output) == (1, True), output
    bag = unpack(tmp_path)
    rows = "".join(path.read_text() for path in (bag / "data/tables").glob("*.jsonl"))
    assert rows.count('"bytes"') == NIGHTS  # of the document, in each night
    assert "document-x.pdf" not in rows
    assert verify(bag, "--pack")[0] == 0


@pytest.mark.parametrize("failing", ["_tables/ingest.jsonl", "document-3.txt"])
def test_no_pack_is_written_if_the_store_fails(
    pack: Pack, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    (root / "dt=2026-01-01/document-3.txt").write_text("forged")  # a problem is not the end of a pack
    read = verifier.Folder.open

    def fail(folder: verifier.Folder, path: str, buffering: int = -1) -> Any:
        if path == f"dt=2026-01-02/{failing}":
            raise OSError("The store is down.")
        return read(folder, path, buffering)

    monkeypatch.setattr(verifier.Folder, "open", fail)
    code, output = pack("--sample", DOCUMENTS + 1)
    assert (code, "The store is down." in output) == (2, True), output
    assert "No pack is written. The store has failed: try again." in output
    assert not [path for path in tmp_path.iterdir() if "pack" in path.name]


def test_records_that_are_added_meanwhile_are_not_in_the_pack(
    pack: Pack, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = verifier.Verifier.load

    def add_after(self: verifier.Verifier) -> list[verifier.Check]:
        checks = load(self)
        (root / "_evidence/nights/00000004.json").write_text("{}")
        return checks

    monkeypatch.setattr(verifier.Verifier, "load", add_after)
    pack("--source", source(3))
    monkeypatch.undo()
    assert verify(unpack(tmp_path), "--pack")[0] == 0


HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "C:\\evil",
    "a\nb",
    "é" * 300,
    "<script>alert(1)</script>",
    "\u202egnp",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_inside_the_pack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    writer = NightWriter(Location(f"file://{tmp_path}/out"), documents=0)
    text = writer.put(writer.destination(1) / "text.txt", b"text")
    row = {"source": name, "status": "COMPLETED", "path": text["uri"], "sha256": text["sha256"], name: name}
    finding = dict.fromkeys(("source", "framework", "criterion", "category", "sha256"), name)
    writer.close(1, [("ingest", [row]), ("findings", [finding])])
    assert main(["pack", f"{tmp_path}/out", "--source", name, "-o", f"{tmp_path}/pack.zip"]) == 0
    with zipfile.ZipFile(tmp_path / "pack.zip") as file:
        safe = re.compile(r"(data/)?([a-z_]+/){0,2}[a-z0-9-]+\.(txt|json|jsonl|salts|html|py)")
        assert [entry for entry in file.namelist() if not safe.fullmatch(entry)] == []
    bag = unpack(tmp_path)
    assert verify(bag, "--pack")[0] == 0


@pytest.mark.parametrize("name", ["document", "again"], ids=["same tables", "rewritten"])
def test_replaced_revision_is_in_the_pack_as_a_record_only(
    root: Path, tmp_path: Path, pack: Pack, name: str
) -> None:
    writer = NightWriter(Location(f"file://{root}"), documents=DOCUMENTS, name=name)
    replaced = hashlib.sha256((root / "_evidence/nights/00000003.json").read_bytes()).hexdigest()
    write_night(writer, 3, replaces={"number": 3, "sha256": replaced})
    assert pack("--source", source(3))[0] == 0
    bag = unpack(tmp_path)
    assert verify(bag, "--pack")[0] == 0
    code, output = verify(bag, "--pack", "--head", "0" * 8)
    assert (code, "unmatched" in output) == (1, True)


def test_pack_has_no_trace_of_documents_that_were_erased_or_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(Nights(f"file://{tmp_path}/out/", tmp_path / "in"))
    for day in (1, 2):
        tree.close(day, ANNA, BERT)
    place_hold(tree.root, "*/carl*", "A lawsuit", "the lawyer")
    tree.erase(ANNA)
    assert (
        main(
            [
                "pack",
                str(tree.path),
                "--sample",
                "5",
                "--head",
                last_hash(tree.path),
                "-o",
                f"{tmp_path}/pack.zip",
            ]
        )
        == 0
    )
    assert re.findall("(?m)^[A-Z]{2,}", capsys.readouterr().out)[:2] == ["ERASED"] * 2
    bag = unpack(tmp_path)
    content = b"".join(path.read_bytes() for path in sorted(bag.rglob("*")) if path.is_file())
    assert [word for word in (b"bert.pdf", b"Anna", b"carl") if word in content] == [b"bert.pdf"]
    assert verify(bag, "--pack")[0] == 0


def test_rules_of_all_records_are_in_the_pack_and_verified(tmp_path: Path) -> None:
    root = tmp_path / "out"
    writer, content = NightWriter(Location(f"file://{root}"), documents=DOCUMENTS), b'{"demands": "a"}'
    for day in (1, 2):
        sha256 = hashlib.sha256(content).hexdigest()
        path = f"_evidence/rules/{sha256}.json"
        writer.put(Location(f"file://{root}/{path}"), content)
        write_night(writer, day, objects=[{"kind": "rules", "path": path, "sha256": sha256}])
        content += b" "
    (root / "_evidence/rules/notes.json").write_text("{}")
    arguments = ["--from", "2026-01-02", "--source", source(3), "-o", f"{tmp_path}/pack.zip"]
    assert main(["pack", str(root), *arguments]) == 0
    bag = unpack(tmp_path)
    assert verify(bag, "--pack")[0] == 0
    rules = sorted((bag / "data/_evidence/rules").iterdir())
    assert len(rules) == 2
    for file in rules:
        data = file.read_bytes()
        file.write_bytes(data.replace(b"a", b"b"))
        assert verify(bag, "--pack")[0] == 1
        file.unlink()
        assert verify(bag, "--pack")[0] == 1
        file.write_bytes(data)
    # When the pack is made, too.
    for file in rules:
        (root / file.relative_to(bag / "data")).write_bytes(b"{}")
    assert main(["pack", str(root), *arguments[:-1], f"{tmp_path}/other.zip"]) == 1
