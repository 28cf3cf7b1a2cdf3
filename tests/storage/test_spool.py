"""Rows that wait on disk are not mixed up by others who use the same file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from airflow_provider.storage.spool import Spool
from tests.support.forking import Child, may_fork


@may_fork
def test_forked_process_does_not_move_the_rows_of_its_parent() -> None:
    spool = Spool()
    for number in range(100):
        spool[str(number)] = [number] * 50

    def use() -> list[int]:
        spool["own"] = "x" * 10_000
        return [spool[str(number)][0] for number in range(100)]

    assert spool["7"] == [7] * 50
    assert Child(use).result() == list(range(100))
    spool["100"] = [100] * 50
    assert [spool[str(number)] for number in range(101)] == [[number] * 50 for number in range(101)]
    spool.close()


def test_threads_read_their_own_rows() -> None:
    spool = Spool()
    for number in range(2_000):
        spool[str(number)] = {"number": number, "text": "x" * (number % 97)}
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: spool[str(number)]["number"], range(2_000)))
    assert found == list(range(2_000))
    spool["3"] = {"number": "replaced"}
    assert spool.get("3") == {"number": "replaced"}
    assert spool.get("missing") is None
    assert len(spool) == 2_000
    spool.close()
