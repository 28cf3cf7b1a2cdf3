"""Records and rows are not trusted, and a store may fail or deny access."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.storage.locations import Location
from airflow_provider.verification import objects
from airflow_provider.verification.verify import Verifier
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
    monkeypatch.setattr("airflow_provider.verification.links.MAX_RECORD_BYTES", 10_000)
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
    data = line + b"\n"
    manifest = writer.put(writer.root / "dt=2026-01-01/_evidence/manifests/x.jsonl", data)
    writer.night(1, manifests=[{"kind": "ingest", **manifest}])
    code, output = verify()
    assert code == 1
    assert "invalid" in output
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
    assert ("not a regular file" if kind == "pipe" else "is not below the root") in output


def test_a_link_that_leads_out_of_the_root_is_not_followed(
    writer: NightWriter, verify: Verify, tmp_path: Path
) -> None:
    outside, inside = tmp_path / "secret.txt", tmp_path / "out/text.txt"
    outside.write_bytes(b"same")
    writer.close(1, [("ingest", [{**row(f"{writer.root.uri}/text.txt"), "sha256": sha256(b"same")}])])
    inside.symlink_to(outside)
    code, output = verify()
    assert code == 1
    assert "is not below the root, so it was not read" in output
    assert verify("--also", str(tmp_path))[0] == 0


def test_a_loop_of_links_is_named(writer: NightWriter, verify: Verify, tmp_path: Path) -> None:
    name = "text.txt"
    writer.night(1, report={"path": name, "sha256": "0" * 64})
    (tmp_path / "out" / name).symlink_to(tmp_path / "out/other")
    (tmp_path / "out/other").symlink_to(tmp_path / "out" / name)
    code, output = verify()
    assert code == 1
    assert f"{name} is not an object" in output


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
    """Let the store refuse objects: the tests may run as root, whom no permissions stop."""
    opened = objects._local_blocks

    def refuse(name: str, code: int) -> None:
        def blocks(location: Location) -> Iterator[bytes]:
            if name in location.path:
                raise OSError(code, os.strerror(code), location.path)
            yield from opened(location)

        monkeypatch.setattr(objects, "_local_blocks", blocks)

    return refuse


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(objects, "sleep", waited.append)
    return waited


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("name", ["document-1.txt", "manifests", "report", "00000001.json"])
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
def test_an_outage_is_retried_and_stops_without_a_verdict(
    writer: NightWriter,
    verify: Verify,
    denied: Callable[[str, int], None],
    waits: list[float],
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
    result, output = verify("--threads", 1)
    assert (result, said in output, "retry" in output) == (code, True, True)
    assert ("CHANGED" in output) is is_changed
    assert ("were not verified" in output) is name.startswith("dt")
    assert waits == list(objects.RETRY_SECONDS)


def test_an_outage_that_ends_is_retried(
    writer: NightWriter, verify: Verify, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.night(1)
    opened, lock, failures = objects._local_blocks, threading.Lock(), ["once"]

    def blocks(location: Location) -> Iterator[bytes]:
        with lock:
            if "document-1" in location.path and failures:
                failures.pop()
                raise TimeoutError
        yield from opened(location)

    monkeypatch.setattr(objects, "_local_blocks", blocks)
    assert verify()[0] == 0
    assert len(waits) == 1


def test_a_full_disk_of_ours_is_not_a_change(
    writer: NightWriter, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.night(1)

    def refuse(*_: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("airflow_provider.verification.verify.hash_object", refuse)
    code, output = verify()
    assert code == 2
    assert "TMPDIR" in output


def test_no_thread_is_left_behind(writer: NightWriter, tmp_path: Path) -> None:
    for day in (1, 2):
        writer.night(day)
    checks = Verifier(Location(f"file://{tmp_path}/out")).run()
    next(checks)
    checks.close()  # type: ignore[attr-defined]  # it is a generator
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("verify")]
