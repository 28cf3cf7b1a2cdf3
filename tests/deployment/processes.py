"""Processes in sessions of their own, which never outlive the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 10.0  # seconds to end in an orderly way

# Ends the sessions that it was told of, as soon as no process holds the other end of its pipe any more.
GUARD = """
import sys
from tests.deployment.processes import kill_session
sessions = [int(line) for line in sys.stdin]
for session in sessions:
    kill_session(session)
"""


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def members(session: int) -> Iterator[tuple[int, int]]:
    """Find the processes of a session, each with its group: Airflow's tasks have groups of their own."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                # The name of the program, in brackets, may contain anything.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    yield int(entry.name), int(fields[2])


def processes_in(folder: Path) -> list[int]:
    """Find the processes that work in a folder; their environment tells nothing, a title may be over it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "cwd").readlink().is_relative_to(folder):
                    found.append(int(entry.name))
    return found


def kill_session(session: int) -> None:
    """End all processes of a session at once."""
    for _ in range(1200):  # one may just be starting another
        groups = {group for _, group in members(session)}
        if not groups:
            return
        for group in groups:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        time.sleep(0.05)


class Part:
    """One process of a deployment, with all its children; what it says goes to a file.

    :param stop: what asks it to end in an orderly way
    :param how: more for `Popen`, such as the user that runs it
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: Path,
        stop: signal.Signals = signal.SIGTERM,
        **how: Any,
    ) -> None:
        with output.open("ab") as sink:
            self._begin = sink.tell()
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **how,
            )
        self._stop = stop
        self._is_asked = False
        self.pid = self._process.pid
        self.output = output

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """What it has said so far, without what one before it said into the same file."""
        with self.output.open("rb") as source:
            source.seek(self._begin)
            return source.read().decode(errors="replace")

    def wait(self, timeout: float) -> int:
        """Wait for its end; return its exit code."""
        return self._process.wait(timeout)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and its children."""
        for pid, _ in members(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill -9, children included."""
        kill_session(self.pid)
        self._process.wait()

    def ask_to_end(self) -> None:
        """Ask once: many a program takes the second time for impatience, and drops what it has."""
        if self._is_asked:
            return
        self._is_asked = True
        with suppress(ProcessLookupError):
            self._process.send_signal(self._stop)

    def end(self) -> None:
        """Let it end in an orderly way, for a while."""
        self.ask_to_end()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(TIMEOUT_SECONDS)
        self.kill()


class Guard:
    """Ends sessions also when this process is killed and can't."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", GUARD], stdin=subprocess.PIPE, start_new_session=True, text=True, cwd=ROOT
        )

    def watch(self, session: int) -> None:
        assert self._process.stdin
        print(session, file=self._process.stdin, flush=True)

    def dismiss(self) -> None:
        """Let it end without doing anything: the sessions are over, and their numbers may be used again."""
        self._process.kill()
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def guarded() -> Iterator[dict[str, Part]]:
    """Hold parts by name; all of them have ended afterwards."""
    guard = Guard()
    parts = _Parts(guard)
    try:
        yield parts
    finally:
        # The others need the first one also to end: workers tell it what has become of their tasks.
        every = list(parts.values())
        for group in (every[1:], every[:1]):
            for part in group:
                part.ask_to_end()
            for part in group:
                part.end()
        guard.dismiss()


class _Parts(dict[str, Part]):
    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def __setitem__(self, name: str, part: Part) -> None:
        self._guard.watch(part.pid)
        super().__setitem__(name, part)
