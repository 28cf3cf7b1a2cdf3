"""Lineage in Airflow's own collector, which takes a limited number of assets; folders that stand for many."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat import sdk
from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

from airflow_provider import lineage
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.locations import Location
from tests.support.attempts import Attempts

LIMIT_OF_AIRFLOW = 100
MANIFEST = Location("s3://c@texts/dt=1/_ingest/t/manifest.jsonl")
HOOK = ComplianceHook()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The collector that Airflow uses where somebody reads lineage."""
    made = sdk.HookLineageCollector()
    monkeypatch.setattr(sdk, "get_hook_lineage_collector", lambda: made, raising=False)
    return get_hook_lineage_collector()


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
    return {each.asset.uri: each.asset.extra.get("files") for each in collected}


def test_a_few_documents_are_assets_of_their_own(collector: Any) -> None:
    lineage.report(HOOK, transfers(5), [MANIFEST])
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
        lineage.report(HOOK, transfers(count), [MANIFEST])
    collected = collector.collected_assets
    for found in (uris(collected.inputs), uris(collected.outputs)):
        assert 0 < len(found) < LIMIT_OF_AIRFLOW
        found.pop(MANIFEST.address, None)
        assert sum(1 if files is None else files for files in found.values()) == count
    assert MANIFEST.address in uris(collected.outputs)
    assert "exceeded" not in caplog.text


def test_of_many_documents_the_folders_are_assets(collector: Any) -> None:
    lineage.report(HOOK, transfers(5000), [MANIFEST])
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
    lineage.report_assessment(HOOK, texts, [MANIFEST])
    collected = collector.collected_assets
    assert uris(collected.inputs) == {"s3://texts/dt=0": 2500, "s3://texts/dt=1": 2500}
    assert uris(collected.outputs) == {MANIFEST.address: None}


def test_a_lower_limit_of_the_deployment_counts(collector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LINEAGE__MAX_ASSETS_PER_COLLECTOR", "10")
    lineage.report(HOOK, transfers(9), [MANIFEST])
    collected = collector.collected_assets
    assert len(collected.inputs) == 9
    assert uris(collected.outputs) == {MANIFEST.address: None, "s3://texts/dt=1": 9}


def test_uris_that_airflow_refuses_do_not_fail_the_task(collector: Any) -> None:
    odd = ["s3://", "://", "\udce4", "https://", "x" * 10_000, "ü://ä", "s3:///a", "https://[/a", "a\nb\x00"]
    for count in (1, 100):
        lineage.report(
            HOOK,
            [
                lineage.Transfer(lineage.uri_origin(each * 1 + str(number)), Location(f"/t/{number}"), 1)
                for each in odd
                for number in range(count)
            ],
        )
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


def test_many_manifests_are_one_folder_in_lineage() -> None:
    uris = [
        f"s3://c@b/nights/dt=1/_work/{number}/manifest.jsonl"
        for number in range(lineage.MAX_NIGHT_INPUTS + 1)
    ]
    assert lineage.common_folder(uris) == "s3://c@b/nights/dt=1/_work/"
    assert lineage.common_folder(["s3://b/a/x", "s3://b/c"]) == "s3://b/"


# -- folders that stand for many objects


def sizes(names: list[str], namespace: str = "s3://bucket") -> dict[tuple[str, str], int]:
    return {(namespace, name): 10 for name in names}


def folders(found: dict[tuple[str, str], lineage.Extent]) -> dict[str, int]:
    """Return the number of files of each folder, by its URI."""
    assert all(each.is_folder for each in found.values())
    return {"".join(dataset): extent.files for dataset, extent in found.items()}


def test_a_few_are_named_one_by_one() -> None:
    few = sizes([f"/in/{number}.pdf" for number in range(lineage.MAX_DATASETS)])
    assert lineage.summarize(few, lineage.MAX_DATASETS) == {
        each: lineage.Extent(1, 10, is_folder=False) for each in few
    }


def test_of_one_more_their_folder_is_named() -> None:
    many = sizes([f"/in/deep/{number}.pdf" for number in range(lineage.MAX_DATASETS + 1)])
    assert lineage.summarize(many, lineage.MAX_DATASETS) == {
        ("s3://bucket", "/in/deep"): lineage.Extent(
            lineage.MAX_DATASETS + 1, 10 * (lineage.MAX_DATASETS + 1), is_folder=True
        )
    }


def test_folders_are_as_deep_as_there_is_room_for() -> None:
    months = [f"/in/2026/{month:02}/{number}.pdf" for month in range(1, 13) for number in range(10)]
    days = [f"/in/2025/01/{day:02}/{number}.pdf" for day in range(1, 29) for number in range(10)]
    found = folders(lineage.summarize(sizes([*months, *days]), lineage.MAX_DATASETS))
    # 12 months of one year are few enough, 28 days of the other are not.
    assert found == {
        **{f"s3://bucket/in/2026/{month:02}": 10 for month in range(1, 13)},
        "s3://bucket/in/2025/01": 280,
    }


def test_a_folder_that_has_files_of_its_own_stands_for_all_below_it() -> None:
    names = [f"/in/{folder}/{number}.pdf" for folder in "ab" for number in range(50)]
    assert folders(lineage.summarize(sizes(names), lineage.MAX_DATASETS)) == {
        "s3://bucket/in/a": 50,
        "s3://bucket/in/b": 50,
    }
    assert folders(lineage.summarize(sizes([*names, "/in/readme.pdf"]), lineage.MAX_DATASETS)) == {
        "s3://bucket/in": 101
    }


@pytest.mark.parametrize(
    "names",
    [
        [f"/{number}.pdf" for number in range(5000)],
        [f"/in/{number}/contract.pdf" for number in range(5000)],
        [f"/{number % 7}/{number % 31}/{number % 5}/{number}.pdf" for number in range(5000)],
        [f"/in//{number}.pdf" for number in range(5000)],
        [f"/{'a/' * (number % 600)}{number}.pdf" for number in range(5000)],
    ],
)
def test_there_are_never_many_and_none_is_lost(names: list[str]) -> None:
    found = folders(lineage.summarize(sizes(names), lineage.MAX_DATASETS))
    assert 1 <= len(found) <= lineage.MAX_FOLDERS
    assert sum(found.values()) == len(names)
    ordered = sorted(each.rstrip("/") + "/" for each in found)
    assert not any(second.startswith(first) for first, second in pairwise(ordered))


def test_stores_are_apart() -> None:
    many = sizes([f"/{number}.pdf" for number in range(100)]) | sizes(
        [f"/pages/list?next=/a/b/{number}#c/d" for number in range(50)], "https://example.com"
    )
    assert folders(lineage.summarize(many, lineage.MAX_DATASETS)) == {
        "s3://bucket/": 100,
        "https://example.com/pages": 50,
    }


def test_a_question_mark_in_the_key_of_an_object_starts_no_query() -> None:
    many = sizes([f"/what?/{number}.pdf" for number in range(100)])
    assert folders(lineage.summarize(many, lineage.MAX_DATASETS)) == {"s3://bucket/what?": 100}


def test_of_too_many_hosts_the_largest_are_named() -> None:
    many: dict[tuple[str, str], int] = {}
    for host in range(200):
        many |= sizes([f"/{number}" for number in range(1 + host)], f"https://{host}.example.com")
    found = folders(lineage.summarize(many, lineage.MAX_DATASETS))
    assert found == {
        f"https://{host}.example.com/": 1 + host for host in range(200 - lineage.MAX_FOLDERS, 200)
    }


def test_long_names_are_shortened_and_stay_apart() -> None:
    found = list(lineage.summarize(sizes(["/" + "a" * 10_000 + end for end in "xy"]), lineage.MAX_DATASETS))
    assert len(set(found)) == 2
    assert all(len(name) < lineage.MAX_NAME_CHARS + 100 for _, name in found)


@pytest.mark.parametrize("limit", [0, -1, 1])
def test_without_room_there_are_none(limit: int) -> None:
    found = lineage.summarize(sizes([f"/{number % 2}/{number}" for number in range(100)]), limit)
    assert len(found) == max(limit, 0)
    assert lineage.summarize({}, limit) == {}
