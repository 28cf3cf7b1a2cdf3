"""The servers that speak S3."""

from __future__ import annotations

import json
import socket
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar

from tests.stores.servers import Program, Server, free_ports

PROGRAMS = Path(sys.executable).parent


class S3Server(Server):
    """Speaks S3; `writer` may do everything."""

    writer: ClassVar[tuple[str, str]] = ("writer", "writer-secret")
    reader: ClassVar[tuple[str, str] | None] = None  # may read, not write
    checks_credentials: ClassVar[bool] = True

    def client(self) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=self.writer[0],
            aws_secret_access_key=self.writer[1],
            # What looks into a store from outside is neither repeated nor in a hurry.
            config=Config(retries={"total_max_attempts": 1}, read_timeout=240),
        )


class Moto(S3Server):
    """Runs in this process, so its data outlive a stop. Believes everybody."""

    kind = "moto"
    checks_credentials = False

    def __init__(self) -> None:
        super().__init__()
        self._port = free_ports(1)[0]
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._connections: set[socket.socket] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server

        if self._server:
            return
        connections = self._connections

        # ThreadedMotoServer stops without closing anything: connections then hang instead of breaking.
        class Handler(MotoRequestHandler):
            def setup(self) -> None:
                super().setup()
                connections.add(self.connection)

            def finish(self) -> None:
                connections.discard(self.connection)
                with suppress(OSError):
                    super().finish()

            def log(self, *_: Any) -> None:
                """Say nothing."""

        dispatcher, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

        # moto checks a condition (If-None-Match) first and stores afterwards; in S3 that is one step.
        def app(environ: dict[str, Any], start_response: Any) -> Any:
            is_conditional = "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ
            with one_at_a_time if is_conditional else nullcontext():
                return dispatcher(environ, start_response)

        self._server = make_server("127.0.0.1", self._port, app, threaded=True, request_handler=Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="moto", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            for connection in list(self._connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            assert self._thread
            self._thread.join()
            self._server = None


class Rclone(Program, S3Server):
    """Objects are plain files; knows no rights, and forgets unfinished uploads when it stops."""

    kind = "rclone"

    def command(self) -> list[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        return [
            str(PROGRAMS / "rclone"),
            *("serve", "s3", "--config=", "--vfs-cache-mode=off"),
            f"--addr=127.0.0.1:{self._ports[0]}",
            f"--auth-key={','.join(self.writer)}",
            str(data),
        ]


class SeaweedFS(Program, S3Server):
    """A whole cluster in one process: S3, file names, volumes, and a master."""

    kind = "seaweedfs"
    reader = ("reader", "reader-secret")
    ports = 8
    abrupt = True  # 25 s; what it has acknowledged is there again after a kill

    def command(self) -> list[str]:
        s3, s3_rpc, master, master_rpc, volume, volume_rpc, filer, filer_rpc = self._ports
        (self.folder / "data").mkdir(exist_ok=True)
        access = self.folder / "access.json"
        access.write_text(
            json.dumps(
                {"identities": [_identity(self.writer, "Admin"), _identity(self.reader, "Read", "List")]}
            )
        )
        return [
            str(PROGRAMS / "weed"),
            *("-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            f"-dir={self.folder / 'data'}",
            *(f"-master.port={master}", f"-master.port.grpc={master_rpc}", "-master.telemetry=false"),
            *("-master.electionTimeout=500ms", "-master.heartbeatInterval=100ms"),
            *("-master.volumeSizeLimitMB=64", "-volume.max=1000"),
            *(f"-volume.port={volume}", f"-volume.port.grpc={volume_rpc}"),
            *("-filer", f"-filer.port={filer}", f"-filer.port.grpc={filer_rpc}"),
            f"-filer.localSocket={self.folder / 'filer.sock'}",
            *("-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_rpc}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-s3.config={access}", "-s3.autoCreateBucket=false"),
            f"-s3.localSocket={self.folder / 's3.sock'}",
        ]

    def environment(self) -> dict[str, str]:
        # One volume per bucket is enough.
        return super().environment() | {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}

    def is_ready(self) -> bool:
        """It answers before it can store anything."""
        client = self.client()
        with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket="is-ready")
        client.put_object(Bucket="is-ready", Key="yes", Body=b"yes")
        return True

    def stop(self) -> None:
        super().stop()
        for port in self._ports:  # sockets whose place can't be chosen
            for left in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
                left.unlink()


def _identity(credentials: tuple[str, str], *actions: str) -> dict[str, Any]:
    name, secret = credentials
    keys = {"accessKey": name, "secretKey": secret}
    return {"name": name, "credentials": [keys], "actions": list(actions)}
