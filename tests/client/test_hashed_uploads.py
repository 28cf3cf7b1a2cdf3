"""The hash of an upload is that of the bytes that the service got, however often a request is sent."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.ingest.files import SourceFile
from tests.support.service import Action, Received, Reply, Service
from tests.support.values import CONTENT

ROUTE = f"POST {CONTENT}/file"
ACCEPTED = Reply(202, json={"uuid": "u-1"})


def file_in(request: Received) -> bytes:
    boundary = request.headers["content-type"].partition("boundary=")[2].encode()
    return request.body.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n--" + boundary + b"--\r\n")


@pytest.mark.parametrize("size", [100, 3_000_001])
@pytest.mark.parametrize(
    "refusals",
    [
        [],
        [Reply(401, json={})],
        [Reply(429, headers={"Retry-After": "0"})],
        [Reply(503, headers={"Retry-After": "0"}), Reply(401, json={})],
    ],
    ids=["accepted", "401", "429", "503 and 401"],
)
def test_it_is_of_the_accepted_request(
    service: Service, run: Any, tmp_path: Path, size: int, refusals: list[Action]
) -> None:
    path = tmp_path / "a.pdf"

    def change(request: Received) -> Reply:
        path.write_bytes(b"%PDF-" + os.urandom(size - 5))  # before the request is repeated
        return refusals[0] if isinstance(refusals[0], Reply) else Reply(500)

    path.write_bytes(b"%PDF-" + os.urandom(size - 5))
    service.on(ROUTE, *([change, *refusals[1:]] if refusals else []), ACCEPTED)
    file = SourceFile(str(path))
    assert run("submit_file", file).uuid == "u-1"
    requests = service.requests_to(ROUTE)
    assert len(requests) == len(refusals) + 1
    got = file_in(requests[-1])
    assert got == path.read_bytes()
    assert (file.size, file.sha256) == (size, hashlib.sha256(got).hexdigest())
