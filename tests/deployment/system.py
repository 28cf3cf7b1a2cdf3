"""A whole Airflow deployment on loopback, driven and observed by its REST API.

With LocalExecutor on PostgreSQL or SQLite, or distributed: Celery workers, PostgreSQL and Redis.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import requests

from tests.deployment.processes import Part, guarded
from tests.deployment.servers import free_port, serving
from tests.deployment.settings import environment_of

T = TypeVar("T")

TIMEOUT_SECONDS = 240.0  # without progress, also on a busy machine
LOCKED = 5  # calls while an SQLite database is locked
TAIL = 12  # lines of each log to show when something fails
PARTS = ("api-server", "scheduler", "dag-processor", "triggerer")
OPTIONS = {"scheduler": ["--skip-serve-logs"], "triggerer": ["--skip-serve-logs"]}
PATIENCE = f"""
from functools import partialmethod
from airflow.sdk.execution_time.supervisor import ActivitySubprocess
ActivitySubprocess.kill = partialmethod(ActivitySubprocess.kill, escalation_delay={TIMEOUT_SECONDS})
"""
WORKER = ["celery", "worker", "--skip-serve-logs", "--without-gossip", "--without-mingle"]


class Deployment:
    """The parts of a deployment, and what a user can do with it.

    :param workers: how many Celery workers it has, named worker-1 and so on
    :param port: of the user interface; 0 chooses a free one
    """

    def __init__(
        self,
        home: Path,
        parts: dict[str, Part],
        settings: Mapping[str, str],
        workers: int = 0,
        port: int = 0,
    ) -> None:
        self.home = home
        self.parts = parts
        self.workers = tuple(f"worker-{number}" for number in range(1, workers + 1))
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = environment_of(home, self.url, workers, settings)
        self._rest = requests.Session()
        self._rest.trust_env = False

    # -- processes

    def run(self, *arguments: str) -> None:
        """Run an airflow command to its end."""
        done = subprocess.run(
            command(*arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert not done.returncode, done.stdout + done.stderr

    def start(self, *names: str) -> None:
        """Start some parts, or all."""
        for name in names or (*PARTS, *self.workers):
            arguments = [name, *OPTIONS.get(name, [])]
            if name == "api-server":
                arguments += ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
            if name in self.workers:
                arguments = [*WORKER, "--celery-hostname", name]
            output = self.home / f"{name}.out"
            self.parts[name] = Part(command(*arguments), self.environment, output, cwd=self.home)

    def kill(self, name: str) -> None:
        """Kill -9 a part, as a machine that goes down does."""
        self.parts.pop(name).kill()

    def wait_until_healthy(self) -> None:
        """Wait until all parts send heartbeats, and all workers take tasks."""

        def is_healthy() -> bool:
            try:
                health = self._rest.get(f"{self.url}/api/v2/monitor/health", timeout=10).json()
            except requests.RequestException:
                return False
            names = ("metadatabase", "scheduler", "dag_processor", "triggerer")
            are_well = all((health.get(name) or {}).get("status") == "healthy" for name in names)
            return are_well and all(f"{name} ready." in self.parts[name].said for name in self.workers)

        self.wait_for(is_healthy, "a healthy deployment")
        token = self._rest.get(f"{self.url}/auth/token", timeout=TIMEOUT_SECONDS).json()["access_token"]
        self._rest.headers["Authorization"] = f"Bearer {token}"

    @property
    def database_url(self) -> str:
        """The metadata database, for SQLAlchemy."""
        return self.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]

    # -- the REST API

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Make a call of the REST API.

        On SQLite, which only `make ui` uses, a request may wait for a lock of its own and fail: call again.
        """
        for _ in range(LOCKED):
            answer = self._rest.request(
                method, f"{self.url}/api/v2/{path}", json=body, params=query, timeout=TIMEOUT_SECONDS
            )
            if answer.status_code != 500 or "database is locked" not in answer.text:
                break
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def get(self, path: str) -> requests.Response:
        """Get a page as a user of the UI does."""
        answer = self._rest.get(f"{self.url}{path}", timeout=TIMEOUT_SECONDS)
        assert answer.ok, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer

    def trigger(self, dag_id: str, logical_date: str | None = None, /, **conf: Any) -> Run:
        """Start a run of a DAG as soon as the DAG is known."""
        self.wait_for_dag(dag_id)
        run = self.call("POST", f"dags/{dag_id}/dagRuns", {"logical_date": logical_date, "conf": conf})
        return Run(self, dag_id, run["dag_run_id"])

    def runs(self, dag_id: str) -> list[Run]:
        """Return the runs of a DAG, oldest first."""
        found = self.call("GET", f"dags/{dag_id}/dagRuns", order_by="run_after")["dag_runs"]
        return [Run(self, dag_id, run["dag_run_id"]) for run in found]

    # -- waiting

    def wait_for_dag(self, dag_id: str) -> None:
        """Wait until a DAG is known."""

        def is_known() -> bool:
            return dag_id in [dag["dag_id"] for dag in self.call("GET", "dags")["dags"]]

        self.wait_for(is_known, f"DAG {dag_id}")

    def wait_for(
        self,
        look: Callable[[], T],
        what: str,
        timeout: float = TIMEOUT_SECONDS,
        progress: Callable[[], object] = lambda: None,
    ) -> T:
        """Wait until something is true; or fail with all that may help.

        :param timeout: seconds without progress, so that a slow machine needs no other limit than a fast one
        :param progress: what changes as long as there is progress
        """
        until, before = time.monotonic() + timeout, progress()
        while True:
            began = time.monotonic()
            if seen := look():
                return seen
            if dead := [name for name, part in self.parts.items() if not part.is_alive]:
                raise AssertionError(f"Waited for {what}, but {dead} ended.{self.tails()}")
            state, now = progress(), time.monotonic()
            if state != before:
                until, before = now + timeout, state
            if now > until:
                raise AssertionError(f"Waited {timeout:.0f} s for {what} in vain.{self.tails()}")
            time.sleep(max(0.2, 3 * (now - began)))  # to look costs time that the deployment needs

    def tails(self) -> str:
        """Return the ends of all logs."""
        tasks = sorted(self.home.glob("logs/dag_id=*/**/*.log"), key=lambda log: log.stat().st_mtime)
        logs = sorted(self.home.glob("*.out")) + tasks[-4:]
        return "".join(f"\n-- {log.relative_to(self.home)}\n{_tail(log)}" for log in logs)


class Run:
    """One run of a DAG."""

    def __init__(self, deployment: Deployment, dag_id: str, run_id: str) -> None:
        self.deployment = deployment
        self.dag_id = dag_id
        self.run_id = run_id
        self.path = f"dags/{dag_id}/dagRuns/{run_id}"

    def tasks(self, task_id: str = "submit") -> list[dict[str, Any]]:
        """Return the task instances of a task, one or many."""
        every: list[dict[str, Any]] = []
        while True:
            query = {"task_id": task_id, "limit": 100, "offset": len(every)}
            page = self.deployment.call("GET", f"{self.path}/taskInstances", **query)["task_instances"]
            every += page
            if len(page) < 100:
                return every

    def wait_for_end(self, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """Wait until the run has ended, however it ended."""

        def ended() -> dict[str, Any]:
            run: dict[str, Any] = self.deployment.call("GET", self.path)
            return run if run["state"] in ("success", "failed") else {}

        return self.deployment.wait_for(ended, f"the end of {self.run_id}", timeout, self._states)

    def wait_for(
        self,
        state: str,
        task_id: str = "submit",
        count: int = 1,
        tries: int = 0,
        timeout: float = TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """Wait until a number of instances of a task are in a state, in this try or a later one."""
        seen: list[Any] = []

        def is_there(task: dict[str, Any]) -> bool:
            return task["state"] == state and task["try_number"] >= tries and self.is_parked(task)

        def are_there() -> bool:
            seen[:] = self.tasks(task_id)
            there = [task for task in seen if is_there(task)]
            ended = [task for task in seen if task["state"] in {"success", "failed"} - {state}]
            assert not ended, f"{len(ended)} instances ended as {ended[0]['state']}.{self.deployment.tails()}"
            return len(there) >= count

        def states() -> list[Any]:
            return [(task["map_index"], task["state"], task["try_number"]) for task in seen]

        try:
            self.deployment.wait_for(are_there, f"{count} x {task_id} {state}", timeout, states)
        except AssertionError as error:
            raise AssertionError(f"{error}\n-- {task_id}: {states()}") from None
        first: dict[str, Any] = seen[0]
        return first

    def is_parked(self, task: dict[str, Any]) -> bool:
        """Return whether the scheduler knows that the worker of a task that waits has ended.

        If such a task resumes before that, LocalExecutor takes the end of the worker for a fault.
        """
        if self.deployment.workers or task["state"] not in ("deferred", "awaiting_input"):
            return True
        line = (
            f"TaskInstance Finished: dag_id={self.dag_id}, task_id={task['task_id']}, "
            f"run_id={self.run_id}, map_index={task['map_index']},"
        )
        pattern = rf"{re.escape(line)}.* try_number={task['try_number']},"
        return re.search(pattern, self.deployment.parts["scheduler"].said) is not None

    def _states(self) -> list[Any]:
        """Return the states of the first tasks, which change as long as there is progress."""
        tasks = self.deployment.call("GET", f"{self.path}/taskInstances", limit=100)["task_instances"]
        return [(task["task_id"], task["map_index"], task["state"], task["try_number"]) for task in tasks]

    def mark(self, state: str, task_id: str = "submit") -> None:
        """Mark a task, as a user does in the UI."""
        self.deployment.call("PATCH", f"{self.path}/taskInstances/{task_id}", {"new_state": state})

    def clear(self, task_id: str = "submit") -> None:
        """Clear a task, as a user does in the UI."""
        body = {"dag_run_id": self.run_id, "task_ids": [task_id], "dry_run": False, "only_failed": False}
        self.deployment.call("POST", f"dags/{self.dag_id}/clearTaskInstances", body)

    def returned(self, task_id: str = "submit", map_index: int = -1) -> Any:
        """Return what a task returned."""
        return self.xcom("return_value", task_id, map_index)

    def xcom(self, key: str, task_id: str, map_index: int = -1) -> Any:
        """Return what a task pushed."""
        path = f"{self.path}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.deployment.call("GET", path, deserialize=True, map_index=map_index)["value"]

    def log(self, task_id: str = "submit", attempt: int = 1) -> str:
        """Return the log of a task as the UI gets it."""
        return str(self.log_lines(task_id, attempt))

    def log_lines(self, task_id: str, attempt: int = 1) -> list[dict[str, Any]]:
        """Return the lines of the log of a task, each with its level."""
        answer = self.deployment.call("GET", f"{self.path}/taskInstances/{task_id}/logs/{attempt}")
        lines: list[dict[str, Any]] = answer["content"]
        return lines


def let_tasks_end(home: Path) -> None:
    """Let Airflow wait for the end of a task that it has asked to end.

    It kills a task five seconds later, which on a busy machine is before the task has reacted.
    """
    settings = home / "config" / "airflow_local_settings.py"
    settings.parent.mkdir()
    settings.write_text(PATIENCE)


@contextmanager
def deployed(
    home: Path,
    settings: Mapping[str, str],
    workers: int = 0,
    port: int = 0,
    *,
    on_postgresql: bool = False,
) -> Iterator[Deployment]:
    """Run a deployment; nothing of it is left afterwards.

    :param workers: the number of Celery workers; none is LocalExecutor
    :param port: of the user interface; 0 chooses a free one
    :param on_postgresql: use PostgreSQL also without Celery workers, not SQLite
    """
    with ExitStack() as stack:
        servers = stack.enter_context(serving(home)) if workers or on_postgresql else {}
        parts = stack.enter_context(guarded())
        deployment = Deployment(home, parts, {**servers, **settings}, workers, port)
        deployment.run("db", "migrate")
        deployment.start()
        deployment.wait_until_healthy()
        yield deployment


def command(*arguments: str) -> list[str]:
    """Return the command line of an airflow command."""
    return [sys.executable, "-m", "airflow", *arguments]


def _tail(log: Path) -> str:
    return "\n".join(line[:400] for line in log.read_text(errors="replace").splitlines()[-TAIL:])
