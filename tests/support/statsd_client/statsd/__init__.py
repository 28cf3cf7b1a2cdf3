"""What Airflow uses of the package `statsd`, for environments that lack it: it is an extra of Airflow."""

from __future__ import annotations

import socket


class StatsClient:
    """Sends StatsD lines over UDP."""

    def __init__(
        self, host: str, port: int, prefix: str, maxudpsize: int | bool = 512, ipv6: bool = False
    ) -> None:
        self._address = host, port
        self._prefix = prefix
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def incr(self, stat: str, count: int = 1, rate: float = 1) -> None:
        self._send(stat, count, "c")

    def gauge(self, stat: str, value: float, rate: float = 1, delta: bool = False) -> None:
        self._send(stat, value, "g")

    def timing(self, stat: str, delta: float, rate: float = 1) -> None:
        self._send(stat, delta, "ms")

    def timer(self, stat: str, rate: float = 1) -> StatsClient:
        return self

    def start(self) -> StatsClient:
        return self

    def stop(self, send: bool = True) -> None: ...

    def _send(self, stat: str, value: float, kind: str) -> None:
        self._socket.sendto(f"{self._prefix}.{stat}:{value}|{kind}".encode(), self._address)


class UnixSocketStatsClient(StatsClient):
    """Airflow 3.4 imports it, and uses it only if configured."""
