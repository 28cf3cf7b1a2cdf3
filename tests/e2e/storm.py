"""All that can go wrong at once in a deployment, while it has much to do."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider.emulator.samples import write_samples
from tests.deployment.processes import members
from tests.deployment.system import Deployment, Run
from tests.e2e.stage import CONNECTION, DOCUMENTS, TEXTS, Stage

NIGHTLY = "compliance_nightly_ingestion"
OUTAGE = 5.0  # seconds that a server is away; how long an outage may be is tested in `tests/waiting`
MANY = 30  # tasks that are deferred
SHARDS, EACH = 3, 40  # tasks that ingest, and their documents
CONCURRENCY = 8  # of the DAGs here
STALL = 30.0  # seconds that an answer pauses in its middle; less than a client waits for it
BLIP = 1.0  # seconds in which a gateway answers as if nothing were there


@dataclass
class Storm:
    """What goes on, and what is needed afterwards to judge what came of it."""

    deployment: Deployment
    stage: Stage
    folder: Path
    canary: str
    runs: dict[str, Run] = field(default_factory=dict)
    urls: dict[str, list[str]] = field(default_factory=dict)
    documents: dict[str, str | None] = field(default_factory=dict)
    of_the_night: dict[str, str | None] = field(default_factory=dict)
    crashed: list[dict[str, Any]] = field(default_factory=list)
    refused_logins: int = 0

    def rage(self) -> None:
        """Do it all, when what the schedule has begun is over."""
        earlier = self.deployment.wait_for(lambda: self.deployment.runs(NIGHTLY), "the nightly run")
        for run in earlier:
            run.wait_for_end()
        self.stage.service.configure(jobs="manual")
        self.begin()
        self.lose_a_worker()
        self.lose_the_triggerer_and_the_service()
        self.lose_the_store()
        for name, run in self.runs.items():
            assert run.wait_for_end()["state"] == "success", name

    # -- the steps

    def begin(self) -> None:
        """Begin with everything; the service takes documents, but its answers stall in their middle."""
        samples = write_samples(self.folder / "shards", pdfs=SHARDS * EACH, docx=0, pages=0, seed=2)
        self.documents = self.stage.put("shards/s-", samples)
        samples = write_samples(self.folder / "second", pdfs=30, docx=0, pages=0, seed=3)
        self.of_the_night = self.stage.put("second/n-", samples)
        # So few pass that no shard can be done with it: all of them will have answers that stall.
        service = self.stage.service
        service.fail("submit_file", stall=STALL, skip=EACH - CONCURRENCY - 2, times=None)
        sources = list(self.documents)
        self._ingest("ingest_shards", "shards", [sources[start::SHARDS] for start in range(SHARDS)], "shards")

    def lose_a_worker(self) -> None:
        """Kill -9 a worker in the middle of ingests."""
        deployment, service, shards = self.deployment, self.stage.service, self.runs["shards"]
        deployment.wait_for(lambda: service.faults()[0]["hits"] >= SHARDS * CONCURRENCY, "stalled answers")

        def ingests_on(worker: str) -> list[dict[str, Any]]:
            return [task for task in shards.tasks("ingest") if self._runs(task, worker)]

        victim = max(deployment.workers, key=lambda worker: len(ingests_on(worker)))
        self.crashed = ingests_on(victim)
        deployment.kill(victim)
        service.clear_faults()
        deployment.start(victim)
        # Not before: Airflow needs two minutes to notice that a queued task was lost with its worker.
        self.runs["many"] = deployment.trigger("submit_many", urls=self._pages("many", MANY))

    def lose_the_triggerer_and_the_service(self) -> None:
        """Kill -9 the triggerer when everything is deferred, and take the service away, with all tokens."""
        deployment, service = self.deployment, self.stage.service
        self.runs["shards"].wait_for("deferred", "ingest", count=SHARDS)
        self.runs["many"].wait_for("deferred", count=MANY)
        for status in (404, 403):
            service.fail("get_statuses", status=status, times=None)
            deployment.wait_for(lambda: service.faults()[0]["hits"], f"a {status}")
            time.sleep(BLIP)
            service.clear_faults()
        self.rotate_the_password()
        renewed = service.counters()["refreshes"]
        service.expire_tokens()
        deployment.wait_for(lambda: service.counters()["refreshes"] > renewed, "a new token")

        submits = service.count("submit_file")
        places = {  # with a root of its own: there, no documents of an earlier night vanish
            "documents": f"s3://{CONNECTION}@{DOCUMENTS}/second/",
            "pages": "",
            "destination": f"s3://{CONNECTION}@{TEXTS}/storm/night/",
        }
        self.runs["night"] = deployment.trigger(NIGHTLY, **places)
        deployment.wait_for(lambda: service.count("submit_file") > submits, "a document of the night")
        deployment.kill("triggerer")
        deployment.start("triggerer")
        service.stop()
        time.sleep(OUTAGE)
        service.start()
        looks = service.count("get_statuses", 200)
        deployment.wait_for(lambda: service.count("get_statuses", 200) > looks, "a look after the outage")
        logins = service.counters()["logins"]
        service.revoke_tokens()
        deployment.wait_for(lambda: service.counters()["logins"] > logins, "a new login")

    def rotate_the_password(self) -> None:
        """Change the password at the identity provider and, a little later, in the connection."""
        service, new = self.stage.service, "pass-9Kd3mLp1"
        service.secrets.add(new)
        refused = service.count("login", 401)
        service.change_password(new)
        self.deployment.wait_for(lambda: service.count("login", 401) > refused, "a refused login")
        self.stage.connect(self.deployment)
        looks = service.count("get_statuses", 200)
        self.deployment.wait_for(lambda: service.count("get_statuses", 200) > looks, "a good look")
        self.refused_logins = service.count("login", 401) - refused

    def lose_the_store(self) -> None:
        """Take the store away while texts are written to it."""
        names = {source.rpartition("/")[2] for source in list(self.documents)[: SHARDS * EACH * 2 // 3]}
        names |= set(self.urls["many"])
        jobs = [job["uuid"] for job in self.stage.service.jobs() if job["name"] in names]
        self.stage.service.finish_jobs(*jobs)
        self.deployment.wait_for(lambda: self._texts("shards"), "texts in the store")
        self.stage.server.stop()
        self.stage.service.configure(jobs="instant")
        time.sleep(OUTAGE)
        self.stage.server.start()

    # -- what is seen

    def jobs(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the jobs of some documents at the service; those that were cancelled are gone there."""
        wanted = set(names)
        return [job for job in self.stage.service.jobs() if job["name"] in wanted]

    def _runs(self, task: dict[str, Any], worker: str) -> bool:
        pids = {pid for pid, _ in members(self.deployment.parts[worker].pid)}
        return task["state"] == "running" and task["pid"] in pids

    def _texts(self, name: str) -> list[str]:
        return [key for key in self.stage.keys(f"storm/{name}/") if key.endswith(".txt")]

    def _pages(self, name: str, count: int) -> list[str]:
        page = next(iter(self.stage.pages))
        self.urls[name] = [f"{page}?{name}={number}&{self.canary}" for number in range(count)]
        return self.urls[name]

    def _ingest(self, dag_id: str, name: str, sources: list[Any], conf: str) -> None:
        destination = f"s3://{CONNECTION}@{TEXTS}/storm/{name}/"
        self.runs[name] = self.deployment.trigger(dag_id, destination=destination, **{conf: sources})
