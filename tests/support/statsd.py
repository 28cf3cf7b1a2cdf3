"""A StatsD server: what it receives over UDP, added up."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

PREFIX = "airflow.compliance."
END = b"end"


class StatsdServer:
    """Receives lines such as `airflow.compliance.requests,conn_id=c,operation=get_status,status=200:1|c`.

    :ivar counters: sums of the counters of this provider, by name without the prefix and the values of tags,
        such as `requests.c.get_status.200`
    :ivar gauges: all values of its gauges, in order
    :ivar lines: all lines, also those of Airflow itself
    :param on_gauge: is called with each value of a gauge
    """

    def __init__(self, on_gauge: Callable[[str, float], None] = lambda name, value: None) -> None:
        self._on_gauge = on_gauge
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(240)
        self.port: int = self._socket.getsockname()[1]
        self.lines: list[str] = []
        self.counters: Counter[str] = Counter()
        self.gauges: dict[str, list[float]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """How Airflow is configured to send its metrics here."""
        options = {
            "statsd_on": "True",
            "statsd_influxdb_enabled": "True",
            "statsd_host": "127.0.0.1",
            "statsd_port": str(self.port),
        }
        variables = {f"AIRFLOW__METRICS__{name.upper()}": value for name, value in options.items()}
        if find_spec("statsd") is None:
            variables["PYTHONPATH"] = str(Path(__file__).with_name("statsd_client"))
        return variables

    @contextmanager
    def running(self) -> Iterator[StatsdServer]:
        """Receive until the end of the block, and all that was sent before."""
        thread = threading.Thread(target=self._receive)
        thread.start()
        try:
            yield self
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
                own.sendto(END, ("127.0.0.1", self.port))
            thread.join(240)
            self._socket.close()
            assert not thread.is_alive(), "The StatsD server does not end."

    def _receive(self) -> None:
        while (packet := self._socket.recv(65536)) != END:
            for line in packet.decode().splitlines():
                self.lines.append(line)
                name, _, rest = line.partition(":")
                value, _, kind = rest.partition("|")
                if not name.startswith(PREFIX):
                    continue
                name, *tags = name.removeprefix(PREFIX).split(",")
                name = ".".join((name, *(tag.partition("=")[2] for tag in tags)))
                if kind == "c":
                    self.counters[name] += int(value)
                else:
                    assert kind == "g", line
                    self.gauges.setdefault(name, []).append(float(value))
                    self._on_gauge(name, float(value))
