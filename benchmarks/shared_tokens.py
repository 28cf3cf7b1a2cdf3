"""How often many processes log in, with shared tokens and without, and what kill -9 does to those who share.

`python -m benchmarks.shared_tokens`, a few minutes. Each process makes one call, as a task does. Then four
processes renew the shared token without a pause, and each `kill -9` hits the one that holds the lock, if any.
A token that dies with its process costs one login. If there are more logins than that, or somebody waits for
the dead, it exits with 1 and prints the seed.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from airflow_provider.client.base import SharedState
from airflow_provider.client.settings import Settings
from airflow_provider.client.sync import ComplianceClient
from airflow_provider.exceptions import ComplianceAuthError
from airflow_provider.hooks.token_file import TokenFile, check_encryption
from benchmarks.service import Service

WORKERS = 4  # that renew the token at the same time
LATENCY = 0.01  # seconds, of the emulator
DEADLOCK_SECONDS = 15.0


def main(arguments: Sequence[str] = ()) -> int:
    """Run both parts and print what was counted."""
    parser = argparse.ArgumentParser(description="Logins of many processes, and kill -9 of those who log in")
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    # Otherwise a wrong password would lock the account before all have tried it.
    with Service(latency=LATENCY, lock_after=10 * options.processes) as service:
        settings = _settings(service)
        check_encryption()  # imports the rest
        _count_logins(service, settings, options.processes)
        return _kill(service, settings, options.kills, options.seed)


def _settings(service: Service) -> Settings:
    connection, extra = service.connection, service.connection["extra"]
    return Settings(
        base_url=connection["host"],
        token_url=extra["token_url"],
        username=connection["login"],
        password=SecretStr(connection["password"]),
        client_id=extra["client_id"],
        client_secret=SecretStr(extra["client_secret"]),
    )


def _count_logins(service: Service, settings: Settings, processes: int) -> None:
    wrong = replace(settings, password=SecretStr("wrong"))
    print(f"{f'{processes} processes, one call each':<40}{'shared':>10}{'not shared':>12}")
    for title, used, outcome in (
        ("logins", settings, 0),
        ("attempts with a wrong password", wrong, 2),
    ):
        counted, seconds = [], []
        for is_shared in (True, False):
            with tempfile.TemporaryDirectory(prefix="tokens-") as folder:
                service.reset()
                started = time.monotonic()
                directory = Path(folder) if is_shared else None
                codes = _run([lambda d=directory, s=used: _call(s, d)] * processes)  # type: ignore[misc] # bound
                seconds.append(time.monotonic() - started)
                assert codes == [outcome] * processes, codes
                counted.append(sum(service.counters()["operations"]["login"].values()))
        print(f"{title:<40}{counted[0]:>10}{counted[1]:>12}")
        print(f"{'  seconds':<40}{seconds[0]:>10.1f}{seconds[1]:>12.1f}", flush=True)


def _call(settings: Settings, directory: Path | None) -> int:
    store = TokenFile(directory, settings) if directory else None
    with ComplianceClient(settings, shared=SharedState(settings, store)) as client:
        try:
            client.list_frameworks()
        except ComplianceAuthError:
            return 2
    return 0


def _run(functions: Sequence[Callable[[], int]]) -> list[int]:
    pids = [_fork(function) for function in functions]
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def _fork(function: Callable[[], Any]) -> int:
    pid = os.fork()  # all is imported, and nothing runs here: as fresh as a new process, and much faster
    if not pid:
        code = 1
        try:
            code = function() or 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    return pid


def _kill(service: Service, settings: Settings, kills: int, seed: int) -> int:
    chance, progress = random.Random(seed), mmap.mmap(-1, 8 * WORKERS)
    waits: list[float] = []
    holders = 0
    service.reset()
    with tempfile.TemporaryDirectory(prefix="tokens-") as folder:
        file = TokenFile(Path(folder), settings)
        lock = file.path.with_name(f"{file.path.name}.lock")
        workers = [_fork(lambda n=n: _renew_for_ever(file, settings, progress, n)) for n in range(WORKERS)]  # type: ignore[misc] # bound
        try:
            waits.append(_wait_for_progress(progress))
            for _ in range(kills):
                time.sleep(chance.uniform(0.0, 0.1))
                holder = _holder(lock)
                victim = workers.index(holder) if holder in workers else chance.randrange(WORKERS)
                holders += holder in workers
                os.kill(workers[victim], signal.SIGKILL)
                os.waitpid(workers[victim], 0)
                waits.append(_wait_for_progress(progress))
                workers[victim] = _fork(lambda n=victim: _renew_for_ever(file, settings, progress, n))  # type: ignore[misc] # bound
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        leftovers = len(list(Path(folder).glob("*.tmp")))
    counters = service.counters()
    refused = counters["operations"].get("refresh_token", {}).get("400", 0)
    print(f"\n{kills} kills with seed {seed}, {holders} of them of the process that had the lock")
    print(f"{'logins':<40}{counters['logins']:>10}")
    print(f"{'renewals with the refresh token':<40}{counters['refreshes']:>10}")
    print(f"{'refresh tokens that were lost':<40}{refused:>10}")
    print(f"{'longest time until the next renewal, s':<40}{max(waits):>10.2f}")
    print(f"{'temporary files left':<40}{leftovers:>10}")
    if max(waits) >= DEADLOCK_SECONDS or counters["logins"] > 1 + kills:
        print(f"VIOLATED with --seed {seed}")
        return 1
    return 0


def _renew_for_ever(file: TokenFile, settings: Settings, progress: mmap.mmap, number: int) -> None:
    state = SharedState(settings, file)
    with ComplianceClient(settings, shared=state) as client:
        count = 0
        while True:
            # As if the service had refused the last token.
            client.run_flow(state.tokens.renew(state.tokens.cache.latest))
            count += 1
            struct.pack_into("q", progress, 8 * number, count)


def _wait_for_progress(progress: mmap.mmap) -> float:
    """Wait until one of the processes has a new token; return the seconds that it took."""
    before, started = progress[:], time.monotonic()
    while progress[:] == before and time.monotonic() - started < DEADLOCK_SECONDS:
        time.sleep(0.002)
    return time.monotonic() - started


def _holder(lock: Path) -> int:
    """Return the process that has this lock, or 0."""
    inode = f":{lock.stat().st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(inode):
            return int(fields[4])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
