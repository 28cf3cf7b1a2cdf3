"""What benchmarks share: a service, steps in processes of their own, options, one table, and targets.

The service is the emulator in a process of its own. It answers as ever: real tokens, real jobs, odd but legal
forms. But it makes up web pages instead of fetching them, so that what is measured beside it has the machine
for itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import requests

if TYPE_CHECKING:
    import aiohttp

    from airflow_provider.emulator.service.jobs import Job

SIZE, LARGE = 4000, 6_000_000  # characters of a text: about a page, and one that S3 gets in parts
SITE = "http://pages.invalid"  # never requested
Way = tuple[float, Callable[[], object]]
"""The MiB that others would have imported anyway, and the work, ready to start."""


@dataclass
class Result:
    """What some work took; requests and logins as the service has counted them."""

    seconds: float
    cpu: float
    memory: float = 0.0  # MiB above the imports that are not its own
    requests: int = 0
    logins: int = 0
    service: float = 0.0  # CPU seconds of the service


class TaskInstance:
    """What the operators use of a task instance."""

    dag_id, task_id, map_index, try_number = "d", "t", -1, 1

    def __init__(self, run_id: str = "r") -> None:
        self.run_id = run_id

    def xcom_push(self, key: str, value: Any) -> None:
        """Forget it."""


def page(number: int, group: str = "page") -> str:
    """Return the address of a page."""
    return f"{SITE}/{group}/{number:06}.html"


def text_of(url: str) -> str:
    """Return the text of a page, which no other page has, from its first to its last line."""
    mark = hashlib.sha256(url.encode()).hexdigest()
    line = f"{mark} Über die Auslagerung von Tätigkeiten\n"
    size = LARGE if "/large/" in url else SIZE
    return f"{url}\n{line * (size // len(line))}end of {mark}\n"


class Service:
    """The emulator, seen from another process.

    :param settings: of the emulator
    """

    def __init__(self, **settings: Any) -> None:
        command = [sys.executable, "-m", "benchmarks.harness", "serve", json.dumps(settings)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.connection_json = self._process.stdout.readline().strip()
        assert self.connection_json, "The emulator did not start."
        self.connection: dict[str, Any] = json.loads(self.connection_json)
        self._session = requests.Session()
        self._home = tempfile.TemporaryDirectory(prefix="airflow-home-")
        self.environment = {
            "AIRFLOW_HOME": self._home.name,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_COMPLIANCE_DEFAULT": self.connection_json,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._home.cleanup()

    def control(self, method: str, name: str, **fields: Any) -> Any:
        """Use one of the emulator's controls."""
        url, body = f"{self.connection['host']}/_emulator/{name}", None if method == "GET" else fields
        answer = self._session.request(method, url, json=body, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def counters(self) -> dict[str, Any]:
        """Return what was asked so far."""
        counters: dict[str, Any] = self.control("GET", "counters")
        return counters

    def reset(self) -> None:
        """Forget everything."""
        self.control("POST", "reset")

    def cpu(self) -> float:
        """Return the CPU seconds that it has used so far."""
        return cpu_of(self._process.pid)

    def measure(self, prepare: Callable[..., Way], *arguments: Any) -> Result:
        """Prepare and do some work in a process of its own.

        :param prepare: a function of a module of this package; its arguments go there as JSON
        """
        before, cpu = self.counters(), self.cpu()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        module = f"benchmarks.{Path(prepare.__code__.co_filename).stem}"  # not __main__
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.harness", module, prepare.__name__]
        done = subprocess.run(
            command, input=json.dumps(arguments, default=str),  # may be too long for the command line
            env=environment | self.environment, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        result, after = Result(**json.loads(done.stdout.splitlines()[-1])), self.counters()
        result.requests, result.logins = (after[name] - before[name] for name in ("total", "logins"))
        result.service = self.cpu() - cpu
        return result


def cpu_of(pid: int, *, with_children: bool = False) -> float:
    """Return the CPU seconds that a process has used so far, perhaps with those of its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_children else 13])) / os.sysconf("SC_CLK_TCK")


def mib(field: str = "VmRSS") -> float:
    """Return the memory of this process."""
    (kib,) = re.findall(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) / 1024


def timed(work: Callable[[], object]) -> Result:
    """Do some work in this process."""
    cpu, begin = time.process_time(), time.perf_counter()
    work()
    return Result(time.perf_counter() - begin, time.process_time() - cpu)


def import_airflow(folder: str) -> float:
    """Import what every task has imported; return how large that is, in MiB."""
    from airflow.sdk import ObjectStoragePath

    _ = ObjectStoragePath(folder).fs
    return mib()


# -- bare scripts


def write(file: Path, data: bytes) -> None:
    """Write a file, and hope; a page is written faster than a thread is asked to."""
    file.write_bytes(data)


async def log_in(session: aiohttp.ClientSession) -> tuple[str, dict[str, str]]:
    """Log in once; return the address of the service and the header for each request."""
    connection = json.loads(os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"])
    async with session.post(connection["extra"]["token_url"], data=password_form(connection)) as response:
        token = (await response.json())["access_token"]
    return connection["host"], {"Authorization": f"Bearer {token}"}


def password_form(connection: Mapping[str, Any]) -> dict[str, str]:
    """Return what a login with a password sends."""
    form = {"grant_type": "password", "username": connection["login"], "password": connection["password"]}
    return form | {name: connection["extra"][name] for name in ("client_id", "client_secret")}


# -- what is printed


def options(
    arguments: Sequence[str], description: str | None, names: Sequence[str] = (), **defaults: Any
) -> Any:
    """Parse options, each of the type of its default; several values where that is a list.

    :param names: what may also be named, without an option
    """
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=form)
    if names:
        parser.add_argument("names", nargs="*", help=", ".join(names))
    for name, default in defaults.items():
        one, many = (default[0], {"nargs": "+"}) if isinstance(default, list) else (default, {})
        kind: dict[str, Any] = {"action": "store_true"} if one is False else {"type": type(one), **many}
        parser.add_argument(f"--{name}", default=default, help=f"default: {default}", **kind)
    return parser.parse_args(arguments)


def best_of(rounds: int, ways: Sequence[str], run: Callable[[str, int], Result]) -> dict[str, Result]:
    """Let ways take turns; return the fastest round of each, because the machine does other things, too."""
    found = [{way: run(way, number) for way in ways} for number in range(rounds)]
    return {way: min((one[way] for one in found), key=lambda result: result.seconds) for way in ways}


def table(*rows: Mapping[str, object]) -> None:
    """Print rows that have the same columns."""
    shown = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for first, *others in shown:
        numbers = (f"{text:>{width}}" for text, width in zip(others, widths[1:], strict=True))
        print(f"{first:<{widths[0]}}  {'  '.join(numbers)}", flush=True)


def _text(value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def show(results: Mapping[str, Result], items: int, noun: str) -> None:
    """Print what each way took.

    :param noun: what an item is
    """
    table(*({
        "": way, "s": one.seconds, f"{noun}s/s": items / one.seconds, "CPU-s": one.cpu,
        f"CPU-ms per {noun}": 1000 * one.cpu / items, "CPU-s of the service": one.service, "MiB": one.memory,
        f"requests per {noun}": one.requests / items, "logins": one.logins,
    } for way, one in results.items()))  # fmt: skip


def judge(**targets: tuple[float, float]) -> bool:
    """Print whether each value is at most what it may be; return whether all are."""
    for name, (value, limit) in targets.items():
        what, verdict = name.replace("_", " "), "ok" if value <= limit else "MISSED"
        print(f"{what}: {_text(value)}, at most {_text(limit)}: {verdict}")
    print(flush=True)
    return all(value <= limit for value, limit in targets.values())


# -- in processes of their own


def serve(settings: str) -> None:
    """Run the emulator until standard input ends."""
    from airflow_provider.emulator import Emulator
    from airflow_provider.emulator.service.processing import Processor

    async def at_hand(self: Processor, job: Job) -> str:
        job.fetched = self._state.clock.now()
        return text_of(job.source_url or "")

    Processor._fetch = at_hand  # type: ignore[method-assign] # what this process is for
    with Emulator(**json.loads(settings)) as emulator:
        print(emulator.connection_json, flush=True)
        sys.stdin.read()


def main() -> None:
    """Serve, or do some work and print what it took."""
    if sys.argv[1] == "serve":
        return serve(sys.argv[2])
    imported, work = getattr(import_module(sys.argv[1]), sys.argv[2])(*json.load(sys.stdin))
    result = timed(work)
    result.memory = mib("VmHWM") - imported
    print(json.dumps(vars(result)))
    return None


if __name__ == "__main__":
    main()
