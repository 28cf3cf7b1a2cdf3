"""A real triggerer with 1,000 waiting sensors of ours, beside 1,000 stock deferrable HttpSensors.

`python -m benchmarks.triggerer`, or with `--sensors 100 --window 20` for a quick look. It takes about five
minutes. The triggerer is an `airflow triggerer` process as anybody runs it; the deferred task instances that
it finds in its database were put there by `benchmarks.lag`, because running 2,000 tasks first would take much
longer than what is measured.

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

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests

from airflow_provider.emulator import Emulator
from benchmarks.harness import cpu_of, judge, options, password_form, table
from benchmarks.lag import LagTrigger, SleepTrigger, worst_lag
from tests.deployment.processes import guarded, members
from tests.deployment.system import Deployment

POLL_SECONDS = 5.0
SETTLE_SECONDS = 10.0
LAG_SECONDS = 0.2
Row = tuple[str, dict[str, Any]]
POLLS = ("get_status", "get_statuses", "get_assessment")


def ours(service: Emulator) -> Row:
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.triggers.content import ComplianceContentTrigger

    os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"] = json.dumps(service.connection())
    account = ComplianceHook().account_digest  # as the operator that defers has found it
    uuids, deadline = [service.add_job(status="RUNNING")], time.time() + 86400
    return ComplianceContentTrigger(
        "compliance_default", uuids, POLL_SECONDS, deadline, account=account
    ).serialize()


def stock(service: Emulator) -> Row:
    from airflow.providers.http.triggers.http import HttpSensorTrigger

    form = password_form(service.connection())
    token = requests.post(service.token_url, data=form, timeout=30).json()["access_token"]
    endpoint = f"/api/v1/content-processing/{uuid4()}/status"
    headers = {"Authorization": f"Bearer {token}"}
    return HttpSensorTrigger(endpoint=endpoint, headers=headers, poke_interval=POLL_SECONDS).serialize()


def idle(service: Emulator) -> Row:
    """Return a trigger that only sleeps, with a row like ours: what it costs to pick it up is Airflow's."""
    return SleepTrigger([str(uuid4())], time.time() + 86400).serialize()


class Bench:
    """One triggerer, and what is put before it."""

    def __init__(self, deployment: Deployment, service: Emulator) -> None:
        self.deployment, self.service = deployment, service
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
        command, environment = [sys.executable, "-m", "benchmarks.lag"], self.deployment.environment
        subprocess.run(
            command, env=environment, input=json.dumps(rows), text=True, check=True, stdout=subprocess.DEVNULL
        )
        self.waiting += len(rows)

    def wait_for(self, look: Callable[[], bool]) -> None:
        self.deployment.wait_for(look, "the triggerer", timeout=300)

    def pick_up(self, rows: list[Row]) -> float:
        """Let more tasks wait; return the worst lag while they are picked up."""
        begin = time.time()
        self.defer(rows)
        # Each trigger begins a log of its own.
        logs = "logs/dag_id=waiting/**/*.trigger.*.log"
        self.wait_for(lambda: len(list(self.deployment.home.glob(logs))) >= self.waiting)
        time.sleep(SETTLE_SECONDS)
        return worst_lag(self.lag_file, begin)

    def polls(self) -> int:
        return sum(self.service.count(name) for name in POLLS)

    def use(self) -> tuple[float, float]:
        """Return CPU seconds and MiB of the triggerer's processes; shared memory counts once."""
        cpu = memory = 0.0
        for pid, _ in members(self.deployment.parts["triggerer"].pid):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            memory += int(rollup.partition("\nPss:")[2].split()[0]) / 1024
            cpu += cpu_of(pid)
        return cpu, memory


def measure(row: Callable[[Emulator], Row], sensors: int, window: float, lifetime: int) -> dict[str, float]:
    """Let sensors wait, and measure what that takes."""
    with benched(lifetime) as bench:
        rows = [row(bench.service) for _ in range(sensors)]
        # The first one alone: imports, the look-up of the connection, the login.
        begin = time.time()
        bench.defer(rows[:1])
        bench.wait_for(lambda: bench.polls() > 0)
        time.sleep(3)
        first = worst_lag(bench.lag_file, begin)
        pickup = bench.pick_up(rows[1:])
        begin, polls, (cpu, _) = time.time(), bench.polls(), bench.use()
        time.sleep(window)
        minutes, polls, (cpu_end, memory) = (time.time() - begin) / 60, bench.polls() - polls, bench.use()
        counters = bench.service.counters()
        return {
            "status requests per minute": polls / minutes, "logins": counters["logins"],
            "renewals": counters["refreshes"], "CPU-s per minute": (cpu_end - cpu) / minutes, "MiB": memory,
            "lag of the first, s": first, "lag of picking up, s": pickup,
            "lag while all wait, s": worst_lag(bench.lag_file, begin),
        }  # fmt: skip


@contextmanager
def benched(lifetime: int = 300) -> Iterator[Bench]:
    """Run the service, and a triggerer."""
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
        bench = Bench(Deployment(Path(home), parts, settings), service)
        bench.prepare()
        yield bench


def main(arguments: Sequence[str] = ()) -> int:
    """Measure both sides and print them; the result says whether the targets were met."""
    chosen = options(arguments, __doc__, sensors=1000, window=60.0)
    mine = measure(ours, chosen.sensors, chosen.window, lifetime=20)
    theirs = measure(stock, chosen.sensors, chosen.window, lifetime=86400)
    with benched() as bench:
        asleep = bench.pick_up([idle(bench.service) for _ in range(chosen.sensors)])
    print(f"{chosen.sensors} deferred sensors, a poll every {POLL_SECONDS:g} s; "
          f"triggers that only sleep are picked up with a lag of {asleep:.3f} s")  # fmt: skip
    table(*({
        "": what, "ours": mine[what], "HttpSensor": theirs[what],
        "ratio": theirs[what] / mine[what] if mine[what] else "-",
    } for what in mine))  # fmt: skip
    requests = "status requests per minute"
    return not judge(**{
        "share of the requests of stock sensors": (mine[requests] / theirs[requests], 1 / 50),
        "logins": (mine["logins"], 1),
        "lag while all wait, and tokens renew": (mine["lag while all wait, s"], LAG_SECONDS),
        "lag while the connection is first looked up": (mine["lag of the first, s"], LAG_SECONDS),
        "lag of picking up": (mine["lag of picking up, s"], max(LAG_SECONDS, 1.5 * asleep)),
    })  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
