"""Rows that wait on disk are not mixed up by others who use the same file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from airflow_provider.nights.assess.verdicts import Spool


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
