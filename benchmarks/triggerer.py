"""A real triggerer with 1,000 waiting sensors of ours, beside 1,000 stock deferrable HttpSensors.

`python -m benchmarks.triggerer`, or with `--sensors 100 --window 20` for a quick look. It takes about five
minutes. The triggerer is an `airflow triggerer` process as anybody runs it; the deferred task instances that
it finds in its database were put there by `benchmarks.deferring`, because running 2,000 tasks first would
take much longer than what is measured.

The stock side gets the best that it can do. A deferrable HttpSensor waits only as long as it is answered 404
(it does not defer at all with a `response_check`), so it asks for the status of jobs that the service does
not know. It can't log in: each sensor carries a token of its own in its headers, from a login that a task
before it would do. It can't renew that token either, so tokens live long there. With our sensors they live
20 seconds, and the jobs are real ones that are not done.

A triggerer that picks up 1,000 triggers at once is busy with that, even if they do nothing. So that lag
is compared with that of 1,000 triggers that only sleep. Garbage collections are left out of the lag: a full
one goes through all that Airflow has in memory, and it is chance in which of the measured times it falls.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests

from airflow_provider.emulator import Emulator
from benchmarks.lag import Lag, LagTrigger, SleepTrigger, lags
from tests.deployment.processes import guarded, members
from tests.deployment.system import Deployment

POLL = 5.0
SETTLE = 10.0
FEWER = 50
LAG = 0.2
Row = tuple[str, dict[str, Any]]
LOOKS = ("get_status", "get_statuses", "get_assessment")


@dataclass
class Result:
    """What one side needed."""

    requests: float
    logins: int
    renewals: int
    cpu: float
    memory: float
    lag_first: float
    lag_pickup: float
    lag: float
    lag_median: float
    lag_collecting: float


def ours(service: Emulator) -> Row:
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.triggers.content import ComplianceContentTrigger

    os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"] = json.dumps(service.connection())
    account = ComplianceHook().account_digest  # as the operator that defers has found it
    uuid, deadline = service.add_job(status="RUNNING"), time.time() + 86400
    return ComplianceContentTrigger("compliance_default", [uuid], POLL, deadline, account=account).serialize()


def stock(service: Emulator) -> Row:
    from airflow.providers.http.triggers.http import HttpSensorTrigger

    it = service.connection()
    form = {"grant_type": "password", "username": it["login"], "password": it["password"]}
    form |= {name: it["extra"][name] for name in ("client_id", "client_secret")}
    token = requests.post(service.token_url, data=form, timeout=30).json()["access_token"]
    endpoint = f"/api/v1/content-processing/{uuid4()}/status"
    headers = {"Authorization": f"Bearer {token}"}
    return HttpSensorTrigger(endpoint=endpoint, headers=headers, poke_interval=POLL).serialize()


def idle(service: Emulator) -> Row:
    """Return a trigger that only sleeps, with a row like ours: what it costs to pick it up is Airflow's."""
    return SleepTrigger([str(uuid4())], time.time() + 86400).serialize()


class Bench:
    """One triggerer, and what is put before it."""

    def __init__(self, deployment: Deployment, service: Emulator) -> None:
        self.deployment = deployment
        self.service = service
        self.lag_file = deployment.home / "lag"
        self.waiting = 0

    def prepare(self) -> None:
        for command in (["db", "migrate"], ["dags", "reserialize"], ["dags", "trigger", "waiting"]):
            self.deployment.run(*command)
        self.defer([LagTrigger(str(self.lag_file)).serialize()])
        self.deployment.start("triggerer")
        self.wait_for(self.lag_file.exists)

    def defer(self, rows: list[Row]) -> None:
        """Let more tasks wait."""
        command = [sys.executable, "-m", "benchmarks.deferring"]
        text, environment = json.dumps(rows), self.deployment.environment
        subprocess.run(command, env=environment, input=text, text=True, check=True, stdout=subprocess.DEVNULL)
        self.waiting += len(rows)

    def wait_for(self, look: Callable[[], bool]) -> None:
        self.deployment.wait_for(look, "the triggerer", timeout=300)

    def all_wait(self) -> bool:
        """Each trigger begins a log of its own."""
        logs = self.deployment.home.glob("logs/dag_id=waiting/**/*.trigger.*.log")
        return sum(1 for _ in logs) >= self.waiting

    def looks(self) -> int:
        return sum(self.service.count(name) for name in LOOKS)

    def lag(self, begin: float) -> list[Lag]:
        return lags(self.lag_file, begin, time.time()) or [Lag(float("nan"), float("nan"))]

    def use(self) -> tuple[float, float]:
        """Return CPU seconds and MiB of the triggerer's processes; shared memory counts once."""
        cpu = memory = 0.0
        for pid, _ in members(self.deployment.parts["triggerer"].pid):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            memory += int(rollup.partition("\nPss:")[2].split()[0]) / 1024
        return cpu, memory


def measure(row: Callable[[Emulator], Row], sensors: int, window: float, lifetime: int) -> Result:
    """Let sensors wait, and measure what that takes."""
    with benched(lifetime) as bench:
        bench.prepare()
        rows = [row(bench.service) for _ in range(sensors)]
        time.sleep(3)
        # The first one alone: imports, the look-up of the connection, the login.
        begin = time.time()
        bench.defer(rows[:1])
        bench.wait_for(lambda: bench.looks() > 0)
        time.sleep(3)
        first = bench.lag(begin)
        begin = time.time()
        bench.defer(rows[1:])
        bench.wait_for(bench.all_wait)
        time.sleep(SETTLE)
        pickup = bench.lag(begin)
        begin, looks, (cpu, _) = time.time(), bench.looks(), bench.use()
        time.sleep(window)
        seconds, looks, (cpu_end, memory) = time.time() - begin, bench.looks() - looks, bench.use()
        steady, counters = bench.lag(begin), bench.service.counters()
        return Result(
            requests=looks * 60 / seconds,
            logins=counters["logins"],
            renewals=counters["refreshes"],
            cpu=(cpu_end - cpu) * 60 / seconds,
            memory=memory,
            lag_first=max(each.own for each in first),
            lag_pickup=max(each.own for each in pickup),
            lag=max(each.own for each in steady),
            lag_median=statistics.median(each.own for each in steady),
            lag_collecting=max(each.worst for each in steady),
        )


def measure_pickup(row: Callable[[Emulator], Row], sensors: int) -> float:
    """Return the worst lag while triggers are picked up."""
    with benched(lifetime=300) as bench:
        bench.prepare()
        rows = [row(bench.service) for _ in range(sensors)]
        time.sleep(3)
        begin = time.time()
        bench.defer(rows)
        bench.wait_for(bench.all_wait)
        time.sleep(SETTLE)
        return max(each.own for each in bench.lag(begin))


@contextmanager
def benched(lifetime: int) -> Iterator[Bench]:
    """Run the service, and what a triggerer needs."""
    dags = Path(__file__).parent / "dags"
    with (
        Emulator(jobs="manual", access_lifetime=lifetime) as service,
        tempfile.TemporaryDirectory(prefix="triggerer-") as home,
        guarded() as parts,
    ):
        settings = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__TRIGGERER__CAPACITY": "2000",
            "AIRFLOW_CONN_COMPLIANCE_DEFAULT": service.connection_json,
            "AIRFLOW_CONN_HTTP_DEFAULT": json.dumps({"conn_type": "http", "host": service.url}),
            "PYTHONPATH": str(dags.parent.parent),
        }
        yield Bench(Deployment(Path(home), parts, settings), service)


def targets(found: Result, sleepers: float) -> dict[str, bool]:
    """Say what everything that waits in a triggerer must meet."""
    return {
        "1 login": found.logins == 1,
        f"lag under {LAG} s while all wait and tokens renew": found.lag < LAG,
        f"lag under {LAG} s when the connection is first looked up": found.lag_first < LAG,
        "picked up with no more lag than triggers that only sleep (half as much again allowed)": (
            found.lag_pickup < max(LAG, 1.5 * sleepers)
        ),
    }


def judge(met: dict[str, bool]) -> int:
    """Print what was met; return an exit code."""
    for target, is_met in met.items():
        print(f"{'met' if is_met else 'MISSED'}: {target}")
    return 0 if all(met.values()) else 1


def main(arguments: tuple[str, ...] = ()) -> int:
    """Measure both sides and print them; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="1,000 sensors in a triggerer")
    parser.add_argument("--sensors", type=int, default=1000)
    parser.add_argument("--window", type=float, default=60.0)
    options = parser.parse_args(arguments)
    print(f"{options.sensors} deferred sensors, one look every {POLL:g} s, {options.window:g} s measured")
    mine = measure(ours, options.sensors, options.window, lifetime=20)
    theirs = measure(stock, options.sensors, options.window, lifetime=86400)
    sleepers = measure_pickup(idle, options.sensors)
    print(f"{'':<38}{'ours':>12}{'HttpSensor':>12}{'ratio':>10}")
    for label, name in (
        ("status requests per minute", "requests"),
        ("logins", "logins"),
        ("renewals of tokens", "renewals"),
        ("CPU seconds per minute", "cpu"),
        ("memory of the triggerer, MiB", "memory"),
        ("worst lag, first sensor alone, s", "lag_first"),
        ("worst lag, all others picked up, s", "lag_pickup"),
        ("worst lag, all waiting, s", "lag"),
        ("median of each second's worst, s", "lag_median"),
        ("worst lag, garbage collections too, s", "lag_collecting"),
    ):
        one, other = getattr(mine, name), getattr(theirs, name)
        ratio = f"{other / one:>9.1f}x" if one else ""
        print(f"{label:<38}{one:>12.6g}{other:>12.6g}{ratio:>10}")
    print(f"{'the same, triggers that only sleep':<38}{sleepers:>12.6g}")
    return judge(
        {f"at least {FEWER} times fewer requests": theirs.requests >= FEWER * mine.requests}
        | targets(mine, sleepers)
    )


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
