"""Little services that keep to the contract only where it is clear: other words, fields, shapes and paths."""

from __future__ import annotations

import re
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tests.support.service import Received, Reply, Service, _send

CONTENT = "/api/v1/content-processing"
TEXT = "Audit rights: the bank may audit. Exit plan: none."
SECRET = "pl4nted-5ecret"


class ForeignService(Service):
    """The common part: jobs and assessments that are done after some polls."""

    polls = 2

    @property
    def routes(self) -> dict[str, Any]:
        raise NotImplementedError

    def __init__(self, *, secret: str = "") -> None:
        super().__init__()
        self.secret = secret
        self.polled: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.deleted: list[str] = []

    @property
    def connection(self) -> dict[str, Any]:
        extra = {"token_url": f"{self.url}/token", "client_id": "c", "client_secret": f"client-{SECRET}"}
        return {
            "conn_type": "compliance",
            "host": self.url,
            "login": "ada",
            "password": f"password-{SECRET}",
            "extra": {**extra, "max_retries": 0},
        }

    def add(self, name: str) -> str:
        number = str(4700 + len(self.polled))
        self.polled[number], self.names[number] = 0, name
        return number

    def is_done(self, number: str) -> bool:
        self.polled[number] += 1
        return self.polled[number] > self.polls

    def _answer(self, handler: Any, request: Received) -> None:
        self.received.append(request)
        path = urlsplit(request.path).path
        reply = self._issue_token(request) if path == "/token" else self._route(request, path)
        if self.secret:
            headers = {**reply.headers, "X-Trace": self.secret, "Retry-After": self.secret}
            kind = headers.get("Content-Type", "application/json")
            headers |= {self.secret: self.secret, "Content-Type": f"{kind}; charset={self.secret}"}
            if location := reply.headers.get("Location"):
                headers["Location"] = f"{location}?token={self.secret}"
            body = reply.json
            if isinstance(body, dict):
                body = {**body, self.secret: self.secret, "trace": {"of": [self.secret, {"it": self.secret}]}}
            reply = Reply(reply.status, body, reply.body + self.secret.encode() * bool(reply.body), headers)
        _send(handler, reply)

    def _route(self, request: Received, path: str) -> Reply:
        for pattern, answer in self.routes.items():
            if found := re.fullmatch(pattern, f"{request.method} {path}"):
                numbers = found.groups()
                if (numbers and numbers[0] not in self.polled) or (numbers and numbers[0] in self.deleted):
                    return self.unknown(path)
                reply: Reply = answer(request, *numbers)
                return reply
        return self.unknown(path)

    def unknown(self, path: str) -> Reply:
        return Reply(404, {"fault": {"text": f"No such thing here: {path}"}})

    def cancel(self, request: Received, number: str) -> Reply:
        self.deleted.append(number)
        return Reply(200)


class TicketService(ForeignService):
    """Wraps records and lists, names all fields otherwise, never redirects, and assesses elsewhere."""

    wrapper = "data"
    done = "done"
    folder = "/api/v1/evaluations"

    @property
    def routes(self) -> dict[str, Any]:
        evaluation = "/api/v1/evaluations/([^/]+)"
        return {
            f"POST {CONTENT}/file": lambda request: Reply(201, {self.wrapper: self.job(self.add("job"))}),
            f"GET {CONTENT}/([^/]+)/status": lambda _, number: Reply(
                200, {self.wrapper: self.job(number, poll=True)}
            ),
            f"POST {CONTENT}/status/batch": self.batch,
            f"GET {CONTENT}/([^/]+)/content": lambda _, number: Reply(
                200, None, TEXT.encode(), {"Content-Type": "text/plain"}
            ),
            f"POST {CONTENT}/([^/]+)/refresh": lambda _, number: Reply(202, {self.wrapper: self.job(number)}),
            f"DELETE {CONTENT}/([^/]+)": self.cancel,
            "GET /api/v1/frameworks": lambda _: Reply(200, {"page": 1, "frameworks": [self.framework]}),
            "GET /api/v1/info": lambda _: Reply(200, {}),
            "POST /api/v1/evaluations": self.evaluate,
            f"GET {self.folder}/([^/]+)/state": lambda _, number: Reply(
                200, self.evaluation(number, poll=True)
            ),
            f"GET {evaluation}/report": self.report,
            f"DELETE {evaluation}": self.cancel,
        }

    framework: ClassVar[dict[str, Any]] = {
        "key": 12,
        "code": "DORA",
        "title": "Digital operational resilience",
        "rules": [{"code": "R1", "title": "Audit rights"}, {"code": "R2", "title": "Exit plan"}],
    }

    def job(self, number: str, *, poll: bool = False) -> dict[str, Any]:
        return {"jobId": number, "state": self.done if poll and self.is_done(number) else "queued"}

    def batch(self, request: Received) -> Reply:
        known = [number for number in request.json["uuids"] if number in self.polled]
        return Reply(200, {"jobs": [self.job(number, poll=True) for number in known]})

    def evaluate(self, request: Received) -> Reply:
        number = self.add("assessment")
        location = {"Location": f"{self.url}{self.folder}/{number}/state"}
        return Reply(202, self.evaluation(number), b"", location)

    def evaluation(self, number: str, *, poll: bool = False) -> dict[str, Any]:
        phase = "finished" if poll and self.is_done(number) else "working"
        return {"ticket": {"no": int(number)}, "phase": phase}

    def report(self, request: Received, number: str) -> Reply:
        verdicts = [
            {"no": 71, "rule": "R1", "outcome": "ok", "comment": "Clause 4 has them."},
            {"no": 72, "rule": "R2", "outcome": "absent", "comment": "There is none."},
        ]
        return Reply(200, {"ticket": {"no": int(number)}, "report": {"verdicts": verdicts}})


class NamingService(TicketService):
    """Names a customer in its fields and paths, and persons in its paths and states."""

    wrapper = "acme-9"
    done = "Handled by Alice"
    folder = "/api/v1/acmebank/Mark/evaluations"

    def job(self, number: str, *, poll: bool = False) -> dict[str, Any]:
        return {**super().job(number, poll=poll), "owner": "Mark"}


class ChainingService(TicketService):
    """Uses names and words of the contract for something else."""

    done = "ready"
    extras: ClassVar[dict[str, Any]] = {
        "endpoints": {
            "assessment_submit": "/api/v1/evaluations",
            "assessment_status": "/api/v1/evaluations/{assessment_id}/state",
            "assessment_results": "/api/v1/evaluations/{assessment_id}/report",
            "assessment_cancel": "/api/v1/evaluations/{assessment_id}",
        },
        "profile": {
            "fields": {
                "uuid": ["data.jobId", "jobId"],
                "status": ["data.state", "state", "phase"],
                "assessmentId": "id",
                "id": "key",
                "codeName": "code",
                "name": "title",
                "criteria": "rules",
                "criterionCodeName": "name",
                "criterionName": "rule",
                "rationale": "category",
                "category": "outcome",
                "message": "fault.text",
            },
            "status": {"ready": "COMPLETED", "completed": "RUNNING", "queued": "PENDING"},
            "category": {"absent": "MISSING", "missing": "NOT_SUFFICIENTLY_REGULATED"},
            "lists": ["jobs", "frameworks"],
        },
    }

    def job(self, number: str, *, poll: bool = False) -> dict[str, Any]:
        return {**super().job(number, poll=poll), "uuid": "of the batch", "name": "a.pdf"}

    def evaluation(self, number: str, *, poll: bool = False) -> dict[str, Any]:
        done = poll and self.is_done(number)
        return {"uuid": "4700", "id": int(number), "phase": "ready" if done else "completed"}

    def report(self, request: Received, number: str) -> Reply:
        if self.polled[number] <= self.polls:
            return Reply(409, {"fault": {"text": "Too early"}})
        rows = [("R1", "Audit rights", "missing"), ("R2", "Exit plan", "absent")]
        names = ("name", "rule", "outcome")
        return Reply(200, [dict(zip(names, row, strict=True), category="There is none.") for row in rows])


class GermanService(ForeignService):
    """Has words that are in no table, redirects as the contract says, and returns plain lists."""

    @property
    def routes(self) -> dict[str, Any]:
        assessment = "/api/v1/assessment/([^/]+)"
        return {
            f"POST {CONTENT}/file": lambda request: self.accept(self.add("job"), CONTENT),
            f"GET {CONTENT}/([^/]+)/status": lambda _, number: self.status(
                number, f"{CONTENT}/{number}/content"
            ),
            f"POST {CONTENT}/status/batch": self.batch,
            f"GET {CONTENT}/([^/]+)/content": lambda _, number: Reply(
                *(409, {"fault": {"text": "Too early"}})
                if self.polled[number] <= self.polls
                else (200, None, TEXT.encode(), {"Content-Type": "text/plain; charset=UTF-8"})
            ),
            f"POST {CONTENT}/([^/]+)/refresh": lambda _, number: self.accept(number, CONTENT),
            f"DELETE {CONTENT}/([^/]+)": self.cancel,
            "GET /api/v1/frameworks": lambda _: Reply(200, [TicketService.framework]),
            "GET /api/v1/info": lambda _: Reply(200, {}),
            "POST /api/v1/assessment": lambda request: self.accept(
                self.add("assessment"), "/api/v1/assessment"
            ),
            f"GET {assessment}/status": lambda _, number: self.status(number, ""),
            f"GET {assessment}/result": self.result,
            f"DELETE {assessment}": self.cancel,
        }

    def record(self, number: str, *, poll: bool = False) -> dict[str, Any]:
        state = "fertig" if poll and self.is_done(number) else "wartet"
        return {"resource": "status", "id": int(number), "zustand": state}

    def accept(self, number: str, folder: str) -> Reply:
        return Reply(202, self.record(number), b"", {"Location": f"{folder}/{number}/status"})

    def status(self, number: str, target: str) -> Reply:
        record = self.record(number, poll=True)
        if target and record["zustand"] == "fertig":
            return Reply(303, None, b"", {"Location": target})
        return Reply(200, record)

    def batch(self, request: Received) -> Reply:
        known = [number for number in request.json["uuids"] if number in self.polled]
        return Reply(200, [self.record(number, poll=True) for number in known])

    def result(self, request: Received, number: str) -> Reply:
        if self.polled[number] <= self.polls:
            return Reply(409, {"fault": {"text": "Too early"}})
        rows = [
            {"id": 81, "criterion": {"codeName": "R1"}, "rating": "Sufficient", "explanation": "Clause 4."}
        ]
        return Reply(200, {"findings": rows})
