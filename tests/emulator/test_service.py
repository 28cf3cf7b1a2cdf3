from __future__ import annotations

import gc
import socket
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import requests

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import make_pdf
from tests.emulator.raw import CONTENT, Raw, statuses_until_done

if TYPE_CHECKING:
    from tests.emulator.pages import Site


def test_it_listens_on_one_loopback_address_only(service: Emulator) -> None:
    # All of 127.0.0.0/8 leads to this machine, so a server that listens everywhere would answer here too.
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        socket.create_connection(("127.0.0.2", service.port), timeout=30).close()


def leave_work_unfinished(site: Site) -> int:
    """Stop an emulator with files to read and a page to fetch; return the port that it had."""
    with Emulator(jobs="polls:3") as service, Raw(service) as raw:
        raw.post(f"{CONTENT}/url", json={"url": site.url + "/silent"})
        for _ in range(10):
            raw.submit(make_pdf("x") + b"%" * 2**21)
        return service.port


def test_a_stop_leaves_no_thread_no_socket_and_no_file(site: Site) -> None:
    before = set(threading.enumerate())

    port = leave_work_unfinished(site)

    assert {thread for thread in set(threading.enumerate()) - before if "emulator" in thread.name} == set()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    # Whatever was left open complains now, and a complaint is an error here.
    gc.collect()


def test_a_stopped_emulator_takes_no_memory() -> None:
    def use_one() -> weakref.ref[Emulator]:
        with Emulator() as service, Raw(service) as raw:
            raw.status(raw.submit())
            return weakref.ref(service)

    gone = use_one()
    gc.collect()

    assert gone() is None


def test_it_comes_back_on_the_same_port_with_the_same_memory() -> None:
    with Emulator() as service:
        with Raw(service) as raw:
            uuid = raw.submit()
            assert raw.status(uuid).status_code == 303
        port = service.port
        service.stop()
        assert service.jobs()[0]["uuid"] == uuid
        service.start()
        with Raw(service) as raw:
            assert raw.status(uuid).status_code == 303

        assert service.port == port


def test_what_was_under_way_at_a_stop_comes_to_its_end_afterwards(site: Site) -> None:
    with Emulator() as service:
        with Raw(service) as raw:
            files = [raw.submit(make_pdf("x") + b"%" * 2**21) for _ in range(10)]
            raw.post(f"{CONTENT}/url", json={"url": site.url + "/silent"})
        service.stop()
        site.silence.set()  # from now on that page ends at once
        service.start()
        with Raw(service) as raw:
            assert {job["status"] for job in raw.batch(*files)} == {"COMPLETED"}
            page = service.jobs()[0]["uuid"]
            assert statuses_until_done(raw, page)[-1] == "FAILED"


def test_an_answer_that_is_still_waiting_does_not_delay_the_stop() -> None:
    errors: list[object] = []
    with Emulator() as service, Raw(service) as raw:
        raw.log_in()
        service.fail("list_frameworks", delay=600)

        def call() -> None:
            try:
                raw.get("/api/v1/frameworks")
            except requests.ConnectionError as error:
                errors.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        while service.counters()["in_flight"] == 0:
            threading.Event().wait(0.01)
        service.stop()
        caller.join(30)

    assert not caller.is_alive()
    assert errors


@pytest.mark.parametrize("turns", range(4))
def test_a_connection_that_comes_while_it_stops_does_not_hang(turns: int) -> None:
    """It is refused, or closed; not left open by a server that has never heard of it."""
    service = Emulator().start()
    connections: list[socket.socket] = []

    def come_and_stop() -> None:
        connections.extend(socket.create_connection(("127.0.0.1", service.port), timeout=30) for _ in "abc")
        stop_after(turns)

    def stop_after(turns: int) -> None:
        loop, stopping = service._loop, service._stopping
        assert loop
        assert stopping
        loop.call_soon(stop_after, turns - 1) if turns else stopping.set()

    service.run_on_loop(come_and_stop)
    service._join()

    for connection in connections:
        with connection, suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_the_controls_can_be_used_from_many_threads(service: Emulator) -> None:
    def add() -> None:
        for _ in range(50):
            service.add_job()

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(service.jobs()) == 400


def test_an_error_in_a_control_reaches_the_caller(service: Emulator) -> None:
    with pytest.raises(KeyError, match="no job"):
        service.job("nothing")


def test_the_emulator_imports_neither_airflow_nor_the_client() -> None:
    code = """
import sys
from airflow_provider.emulator import Emulator
with Emulator():
    pass
ours = [name for name in sys.modules if name.startswith("airflow_provider.") and ".emulator" not in name]
print(ours, "airflow" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout.strip() == "[] False"


def test_an_unknown_setting_is_refused_with_a_list_of_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no setting job\. Use one of: jobs, "):
        Emulator(job="instant")
    with pytest.raises(ValueError, match=r"no entry 'assess'\. Use one of: application_info, "):
        Emulator(endpoints={"assess": "/a"})
    with pytest.raises(ValueError, match=r"must look like '/api/v1/assessments/\{assessment_id\}/status'"):
        Emulator(endpoints={"assessment_status": "/a"})
