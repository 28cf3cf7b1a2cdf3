"""A headless Chromium, driven over its own debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
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
TIMEOUT_SECONDS = 240

# Brings an element into view and clicks on it, where nothing covers it. All in one step: between a look at
# the place and a click on it by the mouse, the page may move something else there, which then opens.
_CLICK = """it => {
  if (!it || it.disabled) return false;
  it.scrollIntoView({block: 'center', behavior: 'instant'});
  const box = it.getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  if (!top || !(it.contains(top) || top.contains(it))) return false;
  it.focus();
  it.click();
  return true;
}"""


# The lowest ratio of the luminances of a text and of what is behind it, over all texts of the page (WCAG 2).
CONTRAST = """(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (color) => parse(color).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return parse(color)[3] === 0 && node.parentElement ? behind(node.parentElement) : color;
  };
  const texts = [...document.body.querySelectorAll('*')].filter((node) => node.checkVisibility() &&
    [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim()));
  return Math.min(...texts.map((node) => {
    const [dark, light] = [getComputedStyle(node).color, behind(node)].map(luminance).sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }));
})()"""


def find_chromium() -> str:
    """Return the path of a Chromium, or skip the test."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return program


class _GoneError(AssertionError):
    """The document that was asked has just made room for another one."""


class Page:
    """One open page."""

    def __init__(self, socket_url: str, runner: asyncio.Runner, profile: Path) -> None:
        self._profile = profile
        self._socket_url = socket_url
        self._runner = runner

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        return self._runner.run(self._evaluate(script))

    def wait_for(self, script: str) -> None:
        """Wait until a JavaScript expression on the page is true."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not self._is_true(script):
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {script}\n{self.evaluate('document.body.innerText')}")
            time.sleep(0.05)

    def reload(self) -> None:
        """Load the page again; returns when the new one is there."""
        self._leave("location.reload()")

    def open(self, url: str) -> None:
        """Load another page; returns when it is there."""
        self._leave(f"location.assign({json.dumps(url)})")

    def _leave(self, script: str) -> None:
        with suppress(_GoneError):
            self.evaluate(f"(window.isOld = true, {script})")
        self.wait_for("!window.isOld && document.readyState == 'complete'")

    def click(self, selector: str) -> None:
        """Click on an element as soon as a person could."""
        self.wait_for(f"({_CLICK})(document.querySelector({json.dumps(selector)}))")

    def wait_for_tab(self, url: str) -> None:
        """Wait until the browser shows an address, in any tab."""
        self._runner.run(_find_page(self._profile, url))

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self._order("Input.insertText", text=text)

    def press_enter(self) -> None:
        """Press the Enter key."""
        for kind in ("rawKeyDown", "char", "keyUp"):
            self._order(
                "Input.dispatchKeyEvent",
                type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13,
            )  # fmt: skip

    def evaluate_on_screen(self, script: str, *, width: int, scheme: str = "light") -> Any:
        """Return the value of a JavaScript expression on a screen of this width and color scheme."""
        return self._runner.run(self._evaluate_on_screen(script, width, scheme))

    def screenshot(self, path: Path, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Save what the page looks like in a window of this size."""
        path.write_bytes(base64.b64decode(self._runner.run(self._take(width, height, scheme))["data"]))

    def _order(self, method: str, **params: Any) -> Any:
        return self._runner.run(self._send(method, params))

    def _is_true(self, script: str) -> bool:
        try:
            return bool(self.evaluate(script))
        except _GoneError:
            return False

    async def _evaluate(self, script: str) -> Any:
        async with self._connected() as socket:
            return await _evaluate_over(socket, script)

    async def _evaluate_on_screen(self, script: str, width: int, scheme: str) -> Any:
        async with self._connected() as socket:
            await _set_screen(socket, width, 900, scheme, is_mobile=True)
            return await _evaluate_over(socket, script)

    async def _take(self, width: int, height: int, scheme: str) -> Any:
        async with self._connected() as socket:
            await _set_screen(socket, width, height, scheme, is_mobile=False)
            await asyncio.sleep(1)  # for the page to settle
            return await _ask(socket, "Page.captureScreenshot", {"format": "png"})

    async def _send(self, method: str, params: dict[str, Any]) -> Any:
        async with self._connected() as socket:
            return await _ask(socket, method, params)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        # An answer may hold a picture, so its size is not limited.
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(self._socket_url, max_msg_size=0) as socket,
        ):
            yield socket


@contextmanager
def open_page(url: str, profile: Path, size: tuple[int, int] = (1280, 1400)) -> Iterator[Page]:
    """Open a page in a browser of its own, which ends with the block."""
    window = f"--window-size={size[0]},{size[1]}"
    command = [find_chromium(), *FLAGS, window, f"--user-data-dir={profile}", url]
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
        asyncio.Runner() as runner,
    ):
        try:
            yield Page(runner.run(_find_page(profile, url)), runner, profile)
        finally:
            # Politely first: its helper processes end only with it.
            process.terminate()
            try:
                process.wait(TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


async def _set_screen(socket: Any, width: int, height: int, scheme: str, *, is_mobile: bool) -> None:
    """Set the size and the color scheme, which hold as long as the connection."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_mobile}
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    await _ask(socket, "Emulation.setDeviceMetricsOverride", size)
    await _ask(socket, "Emulation.setEmulatedMedia", media)


async def _evaluate_over(socket: aiohttp.ClientWebSocketResponse, script: str) -> Any:
    # As if by a person: else a click may not open a tab.
    options = {"returnByValue": True, "userGesture": True}
    result = await _ask(socket, "Runtime.evaluate", {"expression": script, **options})
    assert "exceptionDetails" not in result, result
    return result["result"].get("value")


async def _ask(socket: aiohttp.ClientWebSocketResponse, method: str, params: dict[str, Any]) -> Any:
    await socket.send_json({"id": 1, "method": method, "params": params})
    answer = await socket.receive_json(timeout=TIMEOUT_SECONDS)
    if answer.get("error", {}).get("code") == -32000:
        raise _GoneError(answer)
    assert "error" not in answer, answer
    return answer["result"]


async def _find_page(profile: Path, url: str) -> str:
    port_file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + TIMEOUT_SECONDS
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
