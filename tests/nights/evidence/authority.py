"""A real timestamp authority: `openssl ts -reply`, with a root certificate of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.service import Received, Reply

CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
O = Example
CN = Example Timestamps
[signer]
extendedKeyUsage = critical,timeStamping
[authority]
serial = {folder}/serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
tsa_name = yes
"""
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs what it gets by HTTP."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = folder / "ca.pem"
        folder.mkdir()
        (folder / "config").write_text(CONFIG.format(folder=folder))
        (folder / "serial").write_text("01\n")
        files = {name: str(folder / name) for name in ("ca.key", "ca.pem", "key", "request", "pem", "config")}
        root = (
            "-subj",
            "/CN=Example Root",
            "-keyout",
            files["ca.key"],
            "-out",
            files["ca.pem"],
            "-days",
            "9",
        )
        openssl("req", "-x509", *KEY, *root)
        openssl(
            "req", "-new", *KEY, "-config", files["config"], "-keyout", files["key"], "-out", files["request"]
        )
        signed = ("-CA", files["ca.pem"], "-CAkey", files["ca.key"], "-CAcreateserial", "-out", files["pem"])
        extensions = ("-extfile", files["config"], "-extensions", "signer", "-days", "9")
        openssl("x509", "-req", "-in", files["request"], *signed, *extensions)

    def answer(self, request: Received) -> Reply:
        """Answer a request."""
        assert request.headers["content-type"] == "application/timestamp-query"
        return Reply(body=self.sign(request.body), headers={"Content-Type": "application/timestamp-reply"})

    def sign(self, query: bytes) -> bytes:
        """Return the response to a request."""
        (self._folder / "query").write_bytes(query)
        signer = ("-inkey", str(self._folder / "key"), "-signer", str(self._folder / "pem"))
        config = ("-config", str(self._folder / "config"), "-section", "authority")
        openssl(
            "ts", "-reply", *config, *signer, "-queryfile", str(self._folder / "query"),
            "-out", str(self._folder / "reply"),
        )  # fmt: skip
        return (self._folder / "reply").read_bytes()

    def sign_digest(self, sha256: str) -> bytes:
        """Return a token for a hash."""
        openssl("ts", "-query", "-digest", sha256, "-sha256", "-cert", "-out", str(self._folder / "own"))
        return self.sign((self._folder / "own").read_bytes())


def openssl(*arguments: str) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
