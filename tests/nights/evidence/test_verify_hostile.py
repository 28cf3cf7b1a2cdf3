"""Records and rows are not trusted, and a store may fail or deny access."""

from __future__ import annotations

import ast
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.nights.evidence import verifier
from airflow_provider.nights.evidence.stores import RETRY_SECONDS, RemoteStore
from airflow_provider.nights.evidence.verifier import MISSING, UNREADABLE, Problem
from airflow_provider.storage.locations import Location
from tests.support.nights import NightWriter, sha256

Verify = Callable[..., tuple[int, str]]


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verify:
    def run(*arguments: object) -> tuple[int, str]:
        code = main(["verify", f"{tmp_path}/out", *map(str, arguments)])
        output, errors = capsys.readouterr()
        assert "Traceback" not in output + errors
        return code, output + errors

    return run


@pytest.fixture
def writer(tmp_path: Path) -> NightWriter:
    return NightWriter(Location(f"file://{tmp_path}/out"))


def row(path: object, data: bytes = b"") -> dict[str, Any]:
    return {"source": "x", "status": "COMPLETED", "path": path, "sha256": sha256(data)}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> Any:
        raise AssertionError(f"a connection: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


OUTSIDE = [
    "file:///etc/passwd",
    "/etc/passwd",
    "~/x",
    "../../etc/passwd",
    "a/../../x",
    "{root}/../../../../../../etc/passwd",
    "{root}/../out-other/secret.txt",
    "{root}x/secret.txt",
    "s3://attacker/x.txt",
    "s3://conn@attacker/x.txt",
    "https://attacker.example.com/x.txt",
    "file://attacker/share/x.txt",
]


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("place", ["row", "report", "manifests"])
def test_objects_outside_of_the_root_are_reported_and_not_read(
    writer: NightWriter, verify: Verify, place: str, path: str
) -> None:
    named = {**row(path.format(root=writer.root.uri), Path("/etc/passwd").read_bytes()), "kind": "ingest"}
    if place == "row":
        writer.close(1, [("ingest", [named])])
    else:
        writer.night(1, **{place: [named] if place == "manifests" else named})
    code, output = verify()
    assert code == 1
    assert output.startswith("UNREADABLE")
    assert f"outside: '{named['path']}' is not below the root, so it was not read" in output
    assert "1 problem: 1 outside" in output
    assert "--also" in output


def test_another_place_is_read_where_it_is_allowed(
    writer: NightWriter, verify: Verify, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere/x.txt"
    other.parent.mkdir()
    other.write_bytes(b"text")
    writer.close(1, [("ingest", [row(f"file://{other}", b"text")])])
    assert verify()[0] == 1
    assert verify("--also", other.parent)[0] == 0
    other.write_bytes(b"changed")
    code, output = verify("--also", other.parent)
    assert code == 1
    assert f"{other} has changed" in output


ODD: list[Any] = [None, 1, 10**4000, 1e308, True, "", "x", "\0", "\ud800", [], [1], {}, {"path": 1}]
ABSENT = ("report", "replaces", "previous")  # which may be null
UNCHECKED = ("night", "run", "root", "destination")  # what these say is not compared with anything


@pytest.mark.parametrize("value", ODD, ids=[repr(value)[:12] for value in ODD])
@pytest.mark.parametrize("name", ["manifests", "report", "replaces", "previous", "number", *UNCHECKED])
def test_odd_values_in_a_record_do_not_crash(
    writer: NightWriter, verify: Verify, tmp_path: Path, name: str, value: Any
) -> None:
    entry = writer.night(1)
    if name != "previous":
        entry = writer.night(2)
    path = tmp_path / f"out/_evidence/nights/0000000{entry.number}.json"
    path.write_text(json.dumps({**entry.record, name: value}))
    code, output = verify()
    is_absent = (name, value) in [(name, None) for name in ABSENT] or (name, value) == ("manifests", [])
    assert code == (0 if name in UNCHECKED or is_absent else 1), output


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"{" * 100_000,
        b"[" * 100_000,
        b'{"number": ' + b"9" * 10_000 + b"}",
        b'{"number": 2',
    ],
)
def test_a_record_that_can_t_be_parsed_is_named(
    writer: NightWriter, verify: Verify, tmp_path: Path, data: bytes
) -> None:
    writer.night(1)
    writer.night(2)
    writer.night(3)
    (tmp_path / "out/_evidence/nights/00000002.json").write_bytes(data)
    code, output = verify()
    assert code == 1
    assert "00000002.json is damaged" in output
    assert "record 2 is not what record 3 was chained to" in output


def test_a_record_of_any_size_does_not_fill_the_memory(
    writer: NightWriter, verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier, "MAX_RECORD_BYTES", 10_000)
    writer.night(1)
    with (tmp_path / "out/_evidence/nights/00000001.json").open("ab") as file:
        file.truncate(1 << 32)
    code, output = verify()
    assert code == 1
    assert "larger than 10,000 bytes" in output


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"status": "COMPLETED"}',
        b'{"status": "COMPLETED", "path": 1, "sha256": 2}',
        b'{"status": "COMPLETED", "path": "x"}',
        b'{"status": "SKIPPED", "path": "x", "sha256": "ABC"}',
        b'{"path": {"a": 1}}',
        b'{"path": "://", "sha256": "' + b"0" * 64 + b'"}',
        b"x" * 3_000_000,
    ],
)
def test_a_row_that_names_no_object_is_reported(writer: NightWriter, verify: Verify, line: bytes) -> None:
    digest = sha256(b"salt\n" + line + b"\n")
    listed = f"{digest} 1\n".encode()
    for name, data in {
        "t.jsonl": line + b"\n",
        "t.salts": b"salt\n",
        f"_evidence/digests/{sha256(listed)}.txt": listed,
    }.items():
        writer.put(writer.root / name, data)
    table = {"kind": "ingest", "path": "t.jsonl", "salts": "t.salts", "digests": sha256(listed)}
    writer.night(1, manifests=[table])
    code, output = verify()
    assert code == 1
    assert "invalid" in output or "outside" in output
    assert len(output) < 5_000


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "a\ud800b", "dt=2026-01-01", "document-0.txt/inside"])
def test_a_path_that_can_t_exist_is_missing(writer: NightWriter, verify: Verify, name: str) -> None:
    rows = writer.ingest(1)
    writer.close(1, [("ingest", [*rows, row(f"{writer.root.uri}/{name}")])])
    if name.startswith("document"):
        writer.put(writer.root / "document-0.txt", b"")
    code, output = verify()
    assert code == 1
    assert "1 missing" in output


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_regular_files_are_read(writer: NightWriter, verify: Verify, tmp_path: Path, kind: str) -> None:
    writer.close(1, [("ingest", [row(f"{writer.root.uri}/endless.txt")])])
    path = tmp_path / "out/endless.txt"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    code, output = verify()
    assert code == 1
    assert ("not a regular file" if kind == "pipe" else "leads to another place") in output


def test_a_link_that_leads_out_of_the_root_is_not_followed(
    writer: NightWriter, verify: Verify, tmp_path: Path
) -> None:
    outside, inside = tmp_path / "secret.txt", tmp_path / "out/text.txt"
    outside.write_bytes(b"same")
    writer.close(1, [("ingest", [{**row(f"{writer.root.uri}/text.txt"), "sha256": sha256(b"same")}])])
    inside.symlink_to(outside)
    code, output = verify()
    assert code == 1
    assert "leads to another place, so it was not read" in output


def test_a_loop_of_links_is_named(writer: NightWriter, verify: Verify, tmp_path: Path) -> None:
    name = "text.txt"
    writer.night(1, report={"path": name, "sha256": "0" * 64})
    (tmp_path / "out" / name).symlink_to(tmp_path / "out/other")
    (tmp_path / "out/other").symlink_to(tmp_path / "out" / name)
    code, output = verify()
    assert code == 1
    assert f"{name} does not exist: Too many" in output


def test_a_root_that_is_a_loop_of_links_is_an_error(verify: Verify, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "out")
    code, output = verify()
    assert (code, output.startswith("error: ")) == (2, True)


def test_names_can_t_control_the_terminal(writer: NightWriter, verify: Verify) -> None:
    path = f"{writer.root.uri}/\x1b[2J\nOK 1 forged\u202e.txt"
    writer.close(1, [("ingest", [row(path)])], night="\x1b[31m2026")
    _, output = verify()
    assert "\x1b" not in output
    assert "\u202e" not in output
    assert "\nOK" not in output


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Let the disk refuse files: the tests may run as root, whom no permissions stop."""
    opened = os.open

    def refuse(name: str, code: int) -> None:
        def open_file(path: Any, *arguments: Any, **options: Any) -> int:
            if name in str(path):
                raise OSError(code, os.strerror(code), path)
            return opened(path, *arguments, **options)

        monkeypatch.setattr(os, "open", open_file)

    return refuse


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("name", ["document-1.txt", "ingest.jsonl", "report", "00000001", "digests"])
def test_objects_that_may_not_be_read_are_unreadable_not_changed(
    writer: NightWriter, verify: Verify, denied: Callable[[str, int], None], name: str, code: int
) -> None:
    writer.night(1)
    writer.night(2)
    denied(name, code)
    result, output = verify()
    assert result == 1
    assert "UNREADABLE" in output
    assert "CHANGED" not in output
    assert "changed" not in output
    assert name in output


@pytest.mark.parametrize(
    ("name", "is_changed", "code", "said"),
    [
        ("dt=2026-01-02/document-1.txt", False, 2, "STOPPED"),
        ("dt=2026-01-02/document-1.txt", True, 1, "document-0.txt has changed"),  # found before
        ("00000001.json", False, 2, "error: "),
    ],
)
def test_an_outage_stops_without_a_verdict(
    writer: NightWriter,
    verify: Verify,
    denied: Callable[[str, int], None],
    name: str,
    is_changed: bool,
    code: int,
    said: str,
) -> None:
    for day in (1, 2, 3):
        writer.night(day)
    if is_changed:
        writer.put(writer.destination(1) / "document-0.txt", b"changed")
    denied(name, errno.EIO)
    result, output = verify()
    assert (result, said in output, "were not verified" in output) == (code, True, True)
    assert ("CHANGED" in output) is is_changed
    assert "as recorded" not in output


@pytest.mark.parametrize(
    ("errors", "found", "waits"),
    [
        ([], "text", 0),
        ([TimeoutError()], "text", 1),
        ([TimeoutError()] * 3, OSError, 2),
        ([FileNotFoundError()], MISSING, 0),
        ([PermissionError()], UNREADABLE, 0),
        ([IsADirectoryError()], MISSING, 0),
    ],
)
def test_a_store_is_asked_again_after_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: list[Exception], found: Any, waits: int
) -> None:
    (tmp_path / "a.txt").write_text("text")
    location = Location(f"file://{tmp_path}")
    waited: list[float] = []
    monkeypatch.setattr("airflow_provider.nights.evidence.stores.time.sleep", waited.append)
    remaining, get_file = list(errors), location.fs.get_file

    def get(*arguments: Any, **options: Any) -> None:
        if remaining:
            Path(arguments[1]).unlink()  # as gcsfs does
            raise remaining.pop()
        get_file(*arguments, **options)

    monkeypatch.setattr(location.fs, "get_file", get)
    store = RemoteStore(location, 2)
    result: Any
    try:
        with store.open("a.txt") as file:
            result = file.read().decode()
    except Problem as problem:
        result = problem.args[0]
    except OSError:
        result = OSError
    assert (result, waited) == (found, list(RETRY_SECONDS[:waits]))
    assert list(store.each(str, range(3))) == ["0", "1", "2"]


def test_the_verifier_needs_nothing_but_python(writer: NightWriter, tmp_path: Path) -> None:
    """It is copied to a machine without this package."""
    writer.night(1)
    script = tmp_path / "verifier.py"
    script.write_bytes(Path(verifier.__file__).read_bytes())
    assert len(script.read_text().splitlines()) <= 700

    def run(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-I", "-S", str(script), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60)
        return ended.returncode, ended.stdout + ended.stderr

    code, output = run(f"{tmp_path}/out/dt=2026-01-01")
    assert (code, "everything is as recorded" in output) == (0, True), output
    assert run(f"{tmp_path}/out", "--head", "0" * 8)[0] == 1
    assert run(f"{tmp_path}/nowhere")[0] == 2
    assert run()[0] == 2
    ast.parse(script.read_text(), feature_version=(3, 9))


def test_a_table_of_any_size_does_not_fill_the_memory(
    writer: NightWriter, verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier, "MAX_LINE_BYTES", 1000)
    writer.night(1)
    with (tmp_path / "out/dt=2026-01-01/_tables/findings.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    code, output = verify()
    assert (code, "findings.jsonl has changed: line 1 ends elsewhere" in output) == (1, True)


@pytest.mark.parametrize(
    ("digests", "kind"),
    [(None, "invalid"), (["x"], "invalid"), ("../nights/00000001", "invalid"), ("0" * 64, "missing")],
)
def test_a_list_of_digests_that_is_not_one_is_named(
    writer: NightWriter, verify: Verify, tmp_path: Path, digests: Any, kind: str
) -> None:
    entry = writer.night(1)
    writer.put(writer.root / "_evidence/digests/None.txt", b"")
    tables = [{**entry.record["manifests"][0], "digests": digests}]
    (tmp_path / "out/_evidence/nights/00000001.json").write_text(
        json.dumps({**entry.record, "manifests": tables})
    )
    assert f"1 {kind}" in verify()[1]


def test_a_list_of_digests_that_never_ends_is_left_at_the_end_of_the_table(
    writer: NightWriter, verify: Verify
) -> None:
    entry = writer.night(1)
    listed = (f"{'0' * 64} 999999999\n" * 1000).encode()
    writer.put(writer.root / f"_evidence/digests/{sha256(listed)}.txt", listed)
    table = {**entry.record["manifests"][0], "digests": sha256(listed)}
    writer.night(2, manifests=[table])
    assert "ends elsewhere" in verify()[1]


def test_a_record_of_another_format_is_not_said_to_be_verified(writer: NightWriter, verify: Verify) -> None:
    writer.night(1, version=99, manifests=[])
    code, output = verify()
    assert (code, "an unknown version" in output) == (1, True)
