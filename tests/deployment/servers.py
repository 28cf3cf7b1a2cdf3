"""PostgreSQL and Redis, as Debian has them, on loopback: database and broker of a distributed deployment."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.deployment.processes import Part, guarded

TIMEOUT_SECONDS = 240.0  # seconds to start on a busy machine
OWNER = "postgres"  # runs the database where we are root: it refuses to run as root
TUNING = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "dynamic_shared_memory_type": "mmap",  # in its own folder, so that nothing is left when it is killed
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}


def missing() -> str:
    """Say what to install, if anything."""
    absent = [] if _postgresql() else ["postgresql"]
    absent += [] if shutil.which("redis-server") else ["redis-server"]
    return f"needs PostgreSQL and Redis: apt-get install {' '.join(absent)}" if absent else ""


def free_port() -> int:
    """Return a port on which nothing listens, and that no outgoing connection gets."""
    for port in random.sample(range(20_000, 32_000), 1_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("No port is free.")


def is_open(port: int | None) -> bool:
    """Return whether anything listens on a port of this machine."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


@contextmanager
def serving(home: Path) -> Iterator[dict[str, str]]:
    """Run both, with their logs in a folder; gives Airflow's settings for them."""
    assert not (absent := missing()), absent
    # Not in the folder of the deployment: the owner of the database may be barred from there.
    with tempfile.TemporaryDirectory(prefix="postgresql-") as data, guarded() as parts:
        database, broker = free_port(), free_port()
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        programs, who = _postgresql(), _owner(Path(data))
        _initialize(programs, environment, {**who, "cwd": data})
        command = [f"{programs}/postgres", "-D", data, "-p", str(database)]
        command += [f"--{name}={value}" for name, value in TUNING.items()]
        parts["postgresql"] = Part(
            command, environment, home / "postgresql.out", stop=signal.SIGINT, cwd=data, **who
        )
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(broker), "--save", ""]
        parts["redis"] = Part(command, environment, home / "redis.out")
        ready = [f"{programs}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(database), "-U", "airflow"]
        _wait_for(parts["postgresql"], lambda: not subprocess.run(ready, env=environment).returncode)
        _wait_for(parts["redis"], lambda: is_open(broker))
        yield {
            "AIRFLOW__CELERY__BROKER_URL": f"redis://127.0.0.1:{broker}/0",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://airflow@127.0.0.1:{database}/postgres",
        }


def dump(database_url: str, target: Path) -> None:
    """Write all tables of a database into a file, as text."""
    where = ["-h", "127.0.0.1", "-p", str(urlsplit(database_url).port), "-U", "airflow"]
    command = [f"{_postgresql()}/pg_dump", *where, "-f", str(target), "postgres"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert not done.returncode, done.stdout + done.stderr


def _postgresql() -> Path | None:
    """Find the programs of the database; Debian keeps them off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: path.parts[-3])
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _owner(data: Path) -> dict[str, Any]:
    """Say for `Popen` who runs the database."""
    if os.getuid():
        return {}
    shutil.chown(data, OWNER, OWNER)
    return {"user": OWNER, "group": OWNER, "extra_groups": []}


def _initialize(programs: Path | None, environment: dict[str, str], how: dict[str, Any]) -> None:
    command = [f"{programs}/initdb", "-D", how["cwd"], "-U", "airflow", "-A", "trust", "--no-sync"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, **how
    )
    assert not done.returncode, done.stdout + done.stderr


def _wait_for(part: Part, look: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while not look():
        if not part.is_alive or time.monotonic() > until:
            raise AssertionError(f"{part.output.stem} does not start:\n{part.said}")
        time.sleep(0.05)
