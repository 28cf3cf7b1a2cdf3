"""Lineage in Airflow's own collector, which takes a limited number of assets; folders that stand for many."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage import lineage
from airflow_provider.storage.locations import Location
from tests.support.attempts import Attempts

LIMIT_OF_AIRFLOW = 100
MANIFEST = Location("s3://c@texts/dt=1/_ingest/t/manifest.jsonl")
HOOK = ComplianceHook()


def transfers(count: int) -> list[lineage.Transfer]:
    """Return the transfers of documents in three kinds of stores."""
    sources = (
        "s3://conn@contracts/in/{}.pdf",
        "https://user:pass@example.com/pages/{}?lang=de",
        "/mnt/old/{}.pdf",
    )
    return [
        lineage.Transfer(
            lineage.uri_origin(sources[number % 3].format(number)),
            Location(f"s3://c@texts/dt=1/{number}.txt"),
            10,
        )
        for number in range(count)
    ]


def uris(collected: list[Any]) -> dict[str, int | None]:
    """Return how many files each asset stands for, by its URI."""
    return {dataset.asset.uri: dataset.asset.extra.get("files") for dataset in collected}


def test_a_few_documents_are_assets_of_their_own(collector: Any) -> None:
    lineage.Lineage(transfers(5), {MANIFEST: 0}).report(HOOK)
    collected = collector.collected_assets
    assert uris(collected.inputs) == dict.fromkeys(
        [
            "s3://contracts/in/0.pdf",
            "https://example.com/pages/1?lang=de",
            "file:///mnt/old/2.pdf",
            "s3://contracts/in/3.pdf",
            "https://example.com/pages/4?lang=de",
        ]
    )
    assert uris(collected.outputs) == dict.fromkeys(
        [MANIFEST.address, *(f"s3://texts/dt=1/{number}.txt" for number in range(5))]
    )


@pytest.mark.parametrize("count", [5, 89, 90, 91, 100, 101, 5000])
def test_airflow_drops_nothing_and_does_not_warn(
    collector: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        lineage.Lineage(transfers(count), {MANIFEST: 0}).report(HOOK)
    collected = collector.collected_assets
    for found in (uris(collected.inputs), uris(collected.outputs)):
        assert 0 < len(found) < LIMIT_OF_AIRFLOW
        found.pop(MANIFEST.address, None)
        assert sum(1 if files is None else files for files in found.values()) == count
    assert MANIFEST.address in uris(collected.outputs)
    assert "exceeded" not in caplog.text


def test_of_many_documents_the_folders_are_assets(collector: Any) -> None:
    lineage.Lineage(transfers(5000), {MANIFEST: 0}).report(HOOK)
    collected = collector.collected_assets
    assert uris(collected.inputs) == {
        "file:///mnt/old": 1666,
        "https://example.com/pages": 1667,
        "s3://contracts/in": 1667,
    }
    assert uris(collected.outputs) == {MANIFEST.address: None, "s3://texts/dt=1": 5000}
    assert "pass" not in str(collected)
    assert "conn@" not in str(collected)


def test_texts_of_an_assessment_are_limited_too(collector: Any) -> None:
    texts = [Location(f"s3://c@texts/dt={number % 2}/{number}.txt") for number in range(5000)]
    lineage.Lineage(tables={MANIFEST: 0}, texts=texts).report(HOOK)
    collected = collector.collected_assets
    assert uris(collected.inputs) == {"s3://texts/": 5000}
    assert uris(collected.outputs) == {MANIFEST.address: None}


def test_a_lower_limit_of_the_deployment_counts(collector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LINEAGE__MAX_ASSETS_PER_COLLECTOR", "10")
    lineage.Lineage(transfers(9), {MANIFEST: 0}).report(HOOK)
    collected = collector.collected_assets
    assert len(collected.inputs) == 9
    assert uris(collected.outputs) == {MANIFEST.address: None, "s3://texts/dt=1": 9}


def test_uris_that_airflow_refuses_do_not_fail_the_task(collector: Any) -> None:
    odd = ["s3://", "://", "\udce4", "https://", "x" * 10_000, "ü://ä", "s3:///a", "https://[/a", "a\nb\x00"]
    for count in (1, 100):
        made = [
            lineage.Transfer(lineage.uri_origin(uri + str(number)), Location(f"/t/{number}"), 1)
            for uri in odd
            for number in range(count)
        ]
        lineage.Lineage(made).report(HOOK)
    assert collector.collected_assets.outputs


def test_an_ingestion_reports_its_manifest(
    compliance_service: Emulator,
    attempts: Attempts,
    collector: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", compliance_service.connection_json)
    pages = [f"{compliance_service.url}/?page={number}" for number in range(5)]
    task = ComplianceIngestOperator(task_id="t", sources=pages, destination=f"file://{tmp_path}/")
    result = attempts.run(task)
    collected = collector.collected_assets
    texts = [f"file://{path}" for path in tmp_path.glob("*.txt")]
    assert len(texts) == 5
    assert set(uris(collected.inputs)) == set(pages)
    assert set(uris(collected.outputs)) == {result["manifest"], *texts}


# -- folders that stand for many objects


def datasets(names: list[str], limit: int = lineage.MAX_DATASETS) -> dict[str, int | None]:
    """Return how many files each dataset stands for, by its URI; None for a file."""
    found = lineage.to_datasets([(lineage.uri_origin(name), 10) for name in names], limit)
    assert all(dataset.bytes == 10 * (dataset.files or 1) for dataset in found)
    return {"".join(dataset.origin): dataset.files for dataset in found}


def many(pattern: str, count: int = 100) -> list[str]:
    return [pattern.format(number, folder=number % 2) for number in range(count)]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (many("s3://b/in/{}", 90), dict.fromkeys(many("s3://b/in/{}", 90))),  # the last number that is named
        (many("s3://b/in/deep/{}", 91), {"s3://b/in/deep": 91}),
        (many("s3://b/in/{folder}/{}"), {"s3://b/in": 100}),
        ([*many("s3://b/in/a/{}"), "s3://b/in/readme"], {"s3://b/in": 101}),
        (many("s3://b/{}"), {"s3://b/": 100}),
        (many("s3://b/what?/{}"), {"s3://b/what?": 100}),  # a key, which has no query
        (
            [*many("s3://b/{}"), *many("https://h/pages/list?next=/a/b/{}#c/d", 50)],
            {"s3://b/": 100, "https://h/pages": 50},
        ),
        (
            [name for host in range(200) for name in many(f"https://{host}/{{}}", 1 + host)],  # the largest
            {f"https://{host}/": 1 + host for host in range(200 - lineage.MAX_DATASETS, 200)},
        ),
        ([], {}),
    ],
)
def test_beyond_the_limit_the_common_folder_of_each_store_is_named(
    names: list[str], found: dict[str, int | None]
) -> None:
    assert datasets(names) == found


def test_long_names_are_shortened_and_stay_apart() -> None:
    found = datasets(["s3://b/" + "a" * 10_000 + end for end in "xy"])
    assert len(found) == 2
    assert all(len(name) < lineage.MAX_NAME_CHARS + 100 for name in found)


@pytest.mark.parametrize("limit", [0, -1, 1])
def test_without_room_nothing_is_named(limit: int) -> None:
    assert len(datasets(many("s3://{folder}/{}"), limit)) == max(limit, 0)
