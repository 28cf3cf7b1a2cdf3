"""A headless Chromium, driven over its own debugging protocol."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
]
PATIENCE = 60


def find_chromium() -> str:
    """Return the path of a Chromium, or skip the test."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return program


class Page:
    """One open page."""

    def __init__(self, socket_url: str, runner: asyncio.Runner) -> None:
        self._socket_url = socket_url
        self._runner = runner

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        return self._runner.run(self._evaluate(script))

    def wait_for(self, script: str) -> None:
        """Wait until a JavaScript expression on the page is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(script):
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {script}\n{self.evaluate('document.body.innerText')}")
            time.sleep(0.05)

    async def _evaluate(self, script: str) -> Any:
        order = {"id": 1, "method": "Runtime.evaluate"}
        order["params"] = {"expression": script, "returnByValue": True}
        async with aiohttp.ClientSession() as session, session.ws_connect(self._socket_url) as socket:
            await socket.send_json(order)
            answer = await socket.receive_json(timeout=PATIENCE)
        result = answer["result"]
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")


@contextmanager
def open_page(url: str, profile: Path) -> Iterator[Page]:
    """Open a page in a browser of its own, which ends with the block."""
    command = [find_chromium(), *FLAGS, f"--user-data-dir={profile}", url]
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
        asyncio.Runner() as runner,
    ):
        try:
            yield Page(runner.run(_find_page(profile, url)), runner)
        finally:
            # Politely first: its helper processes end only with it.
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


async def _find_page(profile: Path, url: str) -> str:
    port_file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if port_file.exists() and (lines := port_file.read_text().split()):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{lines[0]}/json/list") as answer,
            ):
                for page in await answer.json():
                    if page["url"].startswith(url):
                        socket_url: str = page["webSocketDebuggerUrl"]
                        return socket_url
        await asyncio.sleep(0.05)
    raise AssertionError("Chromium did not open the page.")
