"""Evidence is verified in every store, with a connection or with the credentials of the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.nights.evidence import verifier
from airflow_provider.nights.evidence.verifier import BLOCK_BYTES
from airflow_provider.storage.locations import Location
from tests.cli.test_commands import HAS_PROVIDER_COMMANDS
from tests.stores.stores import S3Store, Store
from tests.support.nights import NightWriter, sha256

# Around what one request reads.
SIZES = (0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * 2**20)


def write_nights(store: Store) -> None:
    writer = NightWriter(Location(store.base) / "out")
    writer.night(1)
    rows = []
    for size in SIZES:
        data = os.urandom(size)
        written = writer.put(writer.destination(2) / f"{size}.txt", data)
        rows.append(
            {
                "source": f"file:///in/{size}.pdf",
                "status": "COMPLETED",
                "path": written["uri"],
                "sha256": sha256(data),
            }
        )
    writer.close(2, [("ingest", rows)])


def verify(uri: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()  # what Airflow has logged before
    code = main(["verify", uri])
    output, errors = capsys.readouterr()
    assert "Traceback" not in output + errors
    return code, output + errors


def test_nights_are_verified_in_their_store(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    write_nights(store)
    code, output = verify(f"{store.base}out", capsys)
    assert code == 0, output
    assert f"2 records, {8 + 2 + len(SIZES)} objects" in output
    store.put("out/dt=2026-01-02/1.txt", b"")
    store.put("out/dt=2026-01-02/0.txt", b"no longer empty")
    changed = bytearray(store.read(f"out/dt=2026-01-02/{BLOCK_BYTES + 1}.txt"))
    changed[-1] ^= 1
    store.put(f"out/dt=2026-01-02/{BLOCK_BYTES + 1}.txt", bytes(changed))
    gone = Location(f"{store.base}out/dt=2026-01-02/{BLOCK_BYTES}.txt")
    gone.fs.rm_file(gone.path)
    code, output = verify(f"{store.base}out/", capsys)
    assert code == 1
    assert "4 problems: 3 changed, 1 missing" in output
    assert f"dt=2026-01-02/{BLOCK_BYTES}.txt does not exist" in output


def test_pack_is_made_of_nights_in_their_store(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_nights(store)
    named = ["--source", "file:///in/document-1.pdf", "-o", f"{tmp_path}/pack.zip"]
    assert main(["pack", f"{store.base}out", *named]) == 0, capsys.readouterr().out
    with ZipFile(tmp_path / "pack.zip") as file:
        file.extractall(tmp_path)
    capsys.readouterr()
    assert verifier.main(["--pack", f"{tmp_path}/data"]) == 0
    assert "PARTIAL        1  2026-01-01T00:00:00  3 tables, 4 objects" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["missing", "stranger"])
def test_a_store_that_can_t_be_read_ends_with_2(
    store: Store, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_nights(store)
    code, output = verify(f"{getattr(store, name)}out", capsys)
    assert code == 2
    assert "error: " in output


def shell(store: S3Store, uri: str, endpoint: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an auditor does, who has credentials for the store, and no Airflow."""
    assert store.server
    (connection,) = [
        found for conn_id, found in store.connections.items() if conn_id == f"store_{store.kind}"
    ]
    environment: Mapping[str, str] = {
        "PATH": os.environ["PATH"],
        "AWS_ACCESS_KEY_ID": connection["login"],
        "AWS_SECRET_ACCESS_KEY": connection["password"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "AIRFLOW_HOME": "/nonexistent",
        endpoint: store.server.url,
    }
    call = [sys.executable, "-W", "ignore", "-c", WITHOUT_AIRFLOW, "verify", uri, *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=False, env=environment)


WITHOUT_AIRFLOW = """
import sys
sys.modules["airflow"] = None
from airflow_provider.cli.commands import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("endpoint", "conn_id"), [("AWS_ENDPOINT_URL", ""), ("FSSPEC_S3_ENDPOINT_URL", "store_unknown@")]
)
def test_credentials_of_the_environment_do_without_airflow(store: Store, endpoint: str, conn_id: str) -> None:
    if not isinstance(store, S3Store):
        pytest.skip("other stores have other variables")
    write_nights(store)
    done = shell(store, f"s3://{conn_id}{store.bucket}/out", endpoint)
    assert (done.returncode, done.stdout.count("OK ")) == (0, 2), done
    expected = "instead of the connection 'store_unknown'" if conn_id else ""
    assert expected in done.stderr
    assert bool(done.stderr) == bool(conn_id)


def test_a_connection_in_the_environment_needs_no_database(store: Store) -> None:
    if store.kind != "moto":
        pytest.skip("one store is enough")
    # The command of Airflow does all that ours does, and more.
    command = "airflow compliance" if HAS_PROVIDER_COMMANDS else "airflow_provider"
    write_nights(store)
    environment = {**os.environ, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////nonexistent/airflow.db"}
    call = [sys.executable, "-W", "ignore", "-m", *command.split(), "verify", f"{store.base}out", "--json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done
    *nights, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert [night["status"] for night in nights] == ["OK", "OK"]
    assert last["totals"]["exit_code"] == 0
