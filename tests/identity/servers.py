"""A service that trusts an identity provider: it passes token requests on to it, and writes them down."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.service import Raw, Received, Reply, Service

TIMEOUT_SECONDS = 240.0  # seconds; only a test that has gone wrong waits that long
FRAMEWORKS = "GET /api/v1/frameworks"


@dataclass(frozen=True)
class Grant:
    """One request that reached the token endpoint, and what came of it."""

    form: Mapping[str, str]
    status: int
    answer: Mapping[str, Any]

    @property
    def outcome(self) -> tuple[str, int]:
        return self.form["grant_type"], self.status


class TrustingService(Service):
    """The service, and a proxy before the identity provider's token endpoint.

    :param upstream: the token endpoint
    :ivar passed_on: the token requests so far, in the order of their answers
    :ivar slowness: seconds to wait before a token request is passed on
    :ivar answers_to_lose: how many answers are thrown away, after the identity provider has given them
    """

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self.upstream, self.passed_on = upstream, list[Grant]()
        self.slowness, self.answers_to_lose = 0.0, 0
        self.on("POST /token", self._pass_on)
        self.on(FRAMEWORKS, Reply(json=[]))

    @property
    def outcomes(self) -> list[tuple[str, int]]:
        return [grant.outcome for grant in self.passed_on]

    @property
    def authorizations(self) -> list[str]:
        """The Authorization headers of calls of the service so far."""
        return [request.headers["authorization"] for request in self.requests_to(FRAMEWORKS)]

    @property
    def secrets(self) -> set[str]:
        """All tokens that were ever given out."""
        kinds = ("access_token", "refresh_token", "id_token")
        return {grant.answer[kind] for grant in self.passed_on for kind in kinds if kind in grant.answer}

    def refuse(self, calls: int) -> None:
        """Answer that many calls with 401, all at once when the last of them has come."""
        together = threading.Barrier(calls)

        def refuse(_: Received) -> Reply:
            together.wait(TIMEOUT_SECONDS)
            return Reply(401)

        self.on(FRAMEWORKS, *[refuse] * calls, Reply(json=[]))

    def post(self, body: bytes, authorization: str | None = None) -> tuple[int, str, bytes]:
        """Send a form to the identity provider itself; return status, content type and body."""
        target = urlsplit(self.upstream)
        connection = http.client.HTTPConnection(target.netloc, timeout=TIMEOUT_SECONDS)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        try:
            connection.request(
                "POST",
                target.path,
                body,
                headers | ({"Authorization": authorization} if authorization else {}),
            )
            response = connection.getresponse()
            return response.status, response.headers.get("Content-Type", ""), response.read()
        finally:
            connection.close()

    def _pass_on(self, request: Received) -> Reply | Raw:
        time.sleep(self.slowness)
        status, kind, answer = self.post(request.body, request.headers.get("authorization"))
        found = json.loads(answer) if kind == "application/json" else {}
        self.passed_on.append(Grant(request.form, status, found))
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            return Raw()
        return Reply(status, body=answer, headers={"Content-Type": kind})
