"""How much a process grows while it uploads and downloads a large body, beside the obvious way to do it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 400
LIMIT_MIB = 40.0


def main() -> None:
    """Print growth and speed of each way, each in a process of its own."""
    server = [sys.executable, "-m", "benchmarks.stand_in"]
    with (
        tempfile.NamedTemporaryFile(suffix=".pdf") as file,
        subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        file.write(b"%PDF-1.7\n" + b"x" * 1015)
        file.truncate(MIB << 20)
        file.flush()
        assert process.stdout
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        print(f"{MIB} MiB{'':<20}{'grows by':>14}{'speed':>14}{'limit':>16}")
        for way in WAYS:
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.memory", way, url, file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            growth, seconds = json.loads(done.stdout)
            verdict = (
                ""
                if way.endswith("baseline")
                else f"{LIMIT_MIB:.0f} MiB {'ok' if growth < LIMIT_MIB else 'EXCEEDED'}"
            )
            print(f"{way:<27}{growth:>10.1f} MiB{MIB / seconds:>9.0f} MiB/s{verdict:>16}")
        process.communicate()


def _settings(url: str) -> Any:
    from pydantic import SecretStr

    from airflow_provider.client.settings import Settings

    secret = SecretStr("x")
    return Settings(url, f"{url}/token", "u", secret, "c", secret)


def _sync(url: str, act: Callable[[Any, bool], Any]) -> tuple[float, float]:
    from airflow_provider.client.sync import ComplianceClient

    with ComplianceClient(_settings(url)) as client:
        return _measure(lambda warm_up: act(client, warm_up))


def _async(url: str, act: Callable[[Any, bool], Any]) -> tuple[float, float]:
    from airflow_provider.client.aio import AsyncComplianceClient

    with asyncio.Runner() as runner:
        client = runner.run(AsyncComplianceClient(_settings(url)).__aenter__())
        try:
            return _measure(lambda warm_up: runner.run(act(client, warm_up)))
        finally:
            runner.run(client.__aexit__())


def _measure(act: Callable[[bool], Any]) -> tuple[float, float]:
    """Warm up with a small body, so that growth is the body's alone."""
    act(True)
    before, begin = _peak(), time.perf_counter()
    act(False)
    return _peak() - before, time.perf_counter() - begin


def _peak() -> float:
    (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) / 1024


def _upload(file: str) -> Callable[[Any, bool], Any]:
    def act(client: Any, warm_up: bool) -> Any:
        return client.submit_file(_small() if warm_up else file, "x.pdf")

    return act


def _small() -> Any:
    import io

    return io.BytesIO(b"%PDF-1.7\n" + b"x" * (1 << 20))


def _download(client: Any, warm_up: bool) -> Any:
    return client.download_content("1" if warm_up else str(MIB), Path("/dev/null").open("wb", buffering=0))


def _upload_baseline(url: str, file: str) -> tuple[float, float]:
    import requests

    def act(warm_up: bool) -> None:
        with _small() if warm_up else Path(file).open("rb") as opened:
            requests.post(f"{url}/api/v1/content-processing/file", files={"file": opened}, timeout=60)

    return _measure(act)


def _download_baseline(url: str, file: str) -> tuple[float, float]:
    import requests

    def act(warm_up: bool) -> None:
        size = 1 if warm_up else MIB
        text = requests.get(f"{url}/api/v1/content-processing/{size}/content", timeout=60).text
        Path("/dev/null").write_text(text)

    return _measure(act)


WAYS: dict[str, Callable[[str, str], tuple[float, float]]] = {
    "upload, requests": lambda url, file: _sync(url, _upload(file)),
    "upload, aiohttp": lambda url, file: _async(url, _upload(file)),
    "upload, baseline": _upload_baseline,
    "download, requests": lambda url, _: _sync(url, _download),
    "download, aiohttp": lambda url, _: _async(url, _download),
    "download, baseline": _download_baseline,
}

if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]](sys.argv[2], sys.argv[3])))
