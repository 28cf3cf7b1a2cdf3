"""The emulator in a process of its own, with all web pages at hand.

It answers as ever: real tokens, real jobs, odd but legal forms. But it makes up the pages instead of fetching
them, so that what is measured beside it has the machine for itself. Its settings come as JSON on the command
line; it prints the Airflow connection, and ends with its standard input.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import requests

if TYPE_CHECKING:
    from airflow_provider.emulator.service.jobs import Job

SIZE = 4000  # characters of a text, about a page
LARGE = 6_000_000  # of one in the group of large ones, which S3 gets in parts
SITE = "http://pages.invalid"  # never requested


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
        command = [sys.executable, "-m", "benchmarks.service", json.dumps(settings)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.connection_json = self._process.stdout.readline().strip()
        assert self.connection_json, "The emulator did not start."
        self.connection: dict[str, Any] = json.loads(self.connection_json)
        self.url: str = self.connection["host"]
        self._session = requests.Session()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def control(self, method: str, name: str, **fields: Any) -> Any:
        """Use one of the emulator's controls."""
        body = None if method == "GET" else fields
        answer = self._session.request(method, f"{self.url}/_emulator/{name}", json=body, timeout=60)
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


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process has used so far, without those of its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Serve until standard input ends."""
    from airflow_provider.emulator import Emulator
    from airflow_provider.emulator.service.processing import Processor

    async def at_hand(self: Processor, job: Job) -> str:
        job.fetched = self._state.clock.now()
        return text_of(job.source_url or "")

    Processor._fetch = at_hand  # type: ignore[method-assign] # what this process is for
    with Emulator(**json.loads(sys.argv[1])) as emulator:
        print(emulator.connection_json, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
