"""What the benchmarks share that hold an operator against scripts, each in a process of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.service import Service

if TYPE_CHECKING:
    import aiohttp


@dataclass
class Result:
    """One round of one way; requests and logins as the emulator has counted them."""

    seconds: float
    growth: float  # MiB above the imports that are not its own
    cpu: float
    requests: int = 0
    logins: int = 0
    service: float = 0.0  # CPU seconds of the emulator


@dataclass
class Way:
    """One way to do the work, ready to start.

    :param imported: MiB after what others would have imported anyway
    """

    imported: float
    run: Callable[[], Any]


class TaskInstance:
    """What the operators use of a task instance."""

    dag_id, task_id, map_index, try_number = "d", "t", -1, 1

    def __init__(self, run_id: str = "r") -> None:
        self.run_id = run_id

    def xcom_push(self, key: str, value: Any) -> None:
        """Forget it."""


@contextmanager
def task_environment(service: Service) -> Iterator[dict[str, str]]:
    """Return the environment of a process in which a task can be executed."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory(prefix="airflow-home-") as home:
        yield inherited | {
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_COMPLIANCE_DEFAULT": service.connection_json,
        }


def run_process(service: Service, environment: Mapping[str, str], module: str, *arguments: object) -> Result:
    """Run a module that measures itself, and add what the emulator has counted."""
    before, cpu = service.counters(), service.cpu()
    command = [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result = Result(**json.loads(done.stdout.splitlines()[-1]))
    after = service.counters()
    result.requests = after["total"] - before["total"]
    result.logins = after["logins"] - before["logins"]
    result.service = service.cpu() - cpu
    return result


def measure(way: Way) -> Result:
    """Run one way in this process, and print the result for `run_process`."""
    cpu, begin = time.process_time(), time.perf_counter()
    way.run()
    result = Result(time.perf_counter() - begin, peak_mib() - way.imported, time.process_time() - cpu)
    print(json.dumps(vars(result)))
    return result


def import_airflow(folder: str) -> float:
    """Import what every task has imported; return how large that is, in MiB."""
    import airflow.sdk  # noqa: F401 - what every task has imported
    from airflow.sdk import ObjectStoragePath

    _ = ObjectStoragePath(folder).fs
    return resident()


def resident() -> float:
    """Return the memory of this process, in MiB."""
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) / 1024


def show(ways: Mapping[str, str], best: Mapping[str, Result], items: int, noun: str) -> None:
    """Print the best round of each way.

    :param ways: how to call them
    :param noun: what an item is
    """
    requests, rate, cpu = f"requests per {noun}", f"{noun}s/s", f"CPU per {noun}"
    print(
        f"{'':<27}{'time':>8}{rate:>13}{'CPU':>9}{cpu:>18}{'service':>10}{'grows by':>13}"
        f"{requests:>23}{'logins':>8}"
    )
    for way, each in best.items():
        print(
            f"{ways[way]:<27}{each.seconds:>6.2f} s{items / each.seconds:>13.0f}{each.cpu:>7.2f} s"
            f"{1000 * each.cpu / items:>15.3f} ms{each.service:>8.2f} s"
            f"{each.growth:>9.1f} MiB{each.requests / items:>23.3f}{each.logins:>8}"
        )


def judge(targets: Mapping[str, bool]) -> bool:
    """Print whether targets were met; return whether all were."""
    for target, is_met in targets.items():
        print(f"{target}: {'ok' if is_met else 'MISSED'}")
    print(flush=True)
    return all(targets.values())


# -- for scripts


async def write(file: Path, data: bytes) -> None:
    """Write a file, and hope."""
    file.write_bytes(data)  # noqa: ASYNC240 - a page is written faster than a thread is asked to


async def write_durably(file: Path, data: bytes) -> None:
    """Write a file that is hashed, on the disk, and under its name only when it is whole."""
    hashlib.sha256(data).hexdigest()
    await asyncio.to_thread(_replace, file, data)


def _replace(file: Path, data: bytes) -> None:
    part = file.with_suffix(".part")
    with part.open("wb") as sink:
        sink.write(data)
        sink.flush()
        os.fsync(sink.fileno())
    part.replace(file)


async def log_in(session: aiohttp.ClientSession) -> tuple[str, dict[str, str]]:
    """Log in once; return the address of the service and the header for each request."""
    connection = json.loads(os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"])
    extra = connection["extra"]
    form = {"grant_type": "password", "username": connection["login"]}
    form |= {"password": connection["password"], "client_id": extra["client_id"]}
    form |= {"client_secret": extra["client_secret"]}
    async with session.post(extra["token_url"], data=form) as response:
        token = (await response.json())["access_token"]
    return connection["host"], {"Authorization": f"Bearer {token}"}


def peak_mib() -> float:
    """Return the most memory that this process has had so far, in MiB."""
    (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) / 1024
