"""Plain HTTP against the emulator: no client of ours, no redirects, no retries."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Self

import requests

from airflow_provider.emulator.samples import make_pdf

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator

CONTENT = "/api/v1/content-processing"
TIMEOUT = 240


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a token."""
    payload = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


class Raw:
    """A partner who writes requests by hand."""

    def __init__(self, service: Emulator, username: str | None = None, password: str | None = None) -> None:
        self.service = service
        connection = service.connection()
        self.credentials = {
            "username": username or connection["login"],
            "password": password or connection["password"],
            "client_id": connection["extra"]["client_id"],
            "client_secret": connection["extra"]["client_secret"],
        }
        self.session = requests.Session()
        self.session.trust_env = False
        self._token: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.session.close()

    def post_token(self, **changes: str | None) -> requests.Response:
        """Ask for a token; None leaves a parameter out."""
        form = {**self.credentials, "grant_type": "password", **changes}
        data = {name: value for name, value in form.items() if value is not None}
        return self.session.post(self.service.token_url, data=data, timeout=TIMEOUT)

    def renew(self, refresh_token: str, **changes: str | None) -> requests.Response:
        """Ask for a token with a refresh token."""
        return self.post_token(
            username=None,
            password=None,
            grant_type="refresh_token",
            refresh_token=refresh_token,
            **changes,
        )

    def log_in(self) -> dict[str, Any]:
        """Get a token and use it from now on."""
        response = self.post_token()
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        self._token = body["access_token"]
        return body

    def call(self, method: str, path: str, *, token: str | None = None, **kwargs: Any) -> requests.Response:
        """Call an operation with the token of this partner, or another."""
        if token is None:
            token = self._token or self.log_in()["access_token"]
        headers = {"Authorization": f"Bearer {token}", **kwargs.pop("headers", {})}
        return self.session.request(
            method, self.service.url + path, headers=headers, allow_redirects=False, timeout=TIMEOUT, **kwargs
        )

    def get(self, path: str, **kwargs: Any) -> requests.Response:
        return self.call("GET", path, **kwargs)

    def post(self, path: str, **kwargs: Any) -> requests.Response:
        return self.call("POST", path, **kwargs)

    def delete(self, path: str, **kwargs: Any) -> requests.Response:
        return self.call("DELETE", path, **kwargs)

    def upload(self, data: bytes | None = None, name: str = "contract.pdf") -> requests.Response:
        """Submit a file."""
        content = make_pdf("All services are described here.") if data is None else data
        return self.post(f"{CONTENT}/file", files={"file": (name, content)})

    def submit(self, data: bytes | None = None, name: str = "contract.pdf") -> str:
        """Submit a file that must be taken; return the uuid of its job."""
        response = self.upload(data, name)
        assert response.status_code == 202, response.text
        uuid: str = response.json()["uuid"]
        return uuid

    def status(self, uuid: str) -> requests.Response:
        return self.get(f"{CONTENT}/{uuid}/status")

    def content(self, uuid: str) -> requests.Response:
        return self.get(f"{CONTENT}/{uuid}/content")

    def batch(self, *uuids: str) -> list[dict[str, Any]]:
        """Ask for the statuses of several jobs."""
        response = self.post(f"{CONTENT}/status/batch", json={"uuids": list(uuids)})
        assert response.status_code == 200, response.text
        records: list[dict[str, Any]] = response.json()
        return records

    def control(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Call a control of the emulator."""
        url = f"{self.service.url}/_emulator/{path}"
        return self.session.request(method, url, json=body, timeout=TIMEOUT)


def statuses_until_done(raw: Raw, uuid: str, path: str = CONTENT, most: int = 20) -> list[str]:
    """Poll a job, or what else has such a path, until it is done; return what was seen."""
    seen: list[str] = []
    while len(seen) < most:
        response = raw.get(f"{path}/{uuid}/status")
        seen.append("303" if response.status_code == 303 else response.json()["status"])
        if seen[-1] not in ("PENDING", "RUNNING"):
            return seen
    raise AssertionError(f"never done: {seen}")
