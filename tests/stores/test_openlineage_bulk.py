"""What OpenLineage's own classes make of thousands of documents: one event of limited size."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider.storage import lineage
from airflow_provider.storage.locations import Location

pytest.importorskip(
    "openlineage.client", reason="OpenLineage is in the environment of 'make test-servers' alone"
)

pytestmark = pytest.mark.stores

MANY = 5000
MAX_EVENT_BYTES = 100_000
MAX_MESSAGE_BYTES = 1 << 20  # of a broker such as Kafka
MANIFEST = Location("s3://c@texts/dt=1/_ingest/t/manifest.jsonl")
FINDINGS = Location("s3://c@texts/dt=1/_assess/t/findings.jsonl")
SOURCES = (
    "s3://conn@contracts/in/{}.pdf",
    "https://user:pass@example.com/p/{}?lang=de",
    "file:///mnt/old/{}.pdf",
)


def transfers(count: int, sources: tuple[str, ...] = SOURCES) -> list[lineage.Transfer]:
    return [
        lineage.Transfer(
            lineage.uri_origin(sources[number % len(sources)].format(number)),
            Location(f"s3a://c@texts/dt=1/{number}.txt"),
            number,
        )
        for number in range(count)
    ]


def event_of(found: Any, max_bytes: int = MAX_EVENT_BYTES) -> dict[str, Any]:
    """Return the event as OpenLineage's client sends it; it has to be small in any case."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.serde import Serde

    event = RunEvent(
        eventTime=datetime.now(UTC).isoformat(),
        run=Run(str(uuid4())),
        job=Job("n", "j"),
        eventType=RunState.COMPLETE,
        inputs=found.inputs,
        outputs=found.outputs,
    )
    sent = Serde.to_json(event)
    sent.encode()
    assert len(sent) < max_bytes
    for secret in ("pass", "conn@", "c@texts"):
        assert secret not in sent
    parsed: dict[str, Any] = json.loads(sent)
    return parsed


def statistics(datasets: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, int] | None]:
    """Return how much each dataset is."""
    found: dict[tuple[str, str], dict[str, int] | None] = {}
    for dataset in datasets:
        facets = dataset.get("inputFacets", {}) | dataset.get("outputFacets", {})
        facet = facets.get("inputStatistics") or facets.get("outputStatistics")
        counts = facet and {name: value for name, value in facet.items() if not name.startswith("_")}
        assert (dataset["namespace"], dataset["name"]) not in found
        found[dataset["namespace"], dataset["name"]] = counts
    return found


def test_a_few_documents_are_named_one_by_one() -> None:
    event = event_of(lineage.Lineage(transfers(5), {MANIFEST: 7}).openlineage())
    assert statistics(event["inputs"]) == dict.fromkeys(
        [
            ("s3://contracts", "in/0.pdf"),
            ("https://example.com", "/p/1?lang=de"),
            ("file", "/mnt/old/2.pdf"),
            ("s3://contracts", "in/3.pdf"),
            ("https://example.com", "/p/4?lang=de"),
        ]
    )
    assert statistics(event["outputs"]) == {
        ("s3://texts", MANIFEST.key): {"rowCount": 7, "fileCount": 1},
        **{("s3://texts", f"dt=1/{number}.txt"): {"size": number, "fileCount": 1} for number in range(5)},
    }


def test_of_a_large_shard_folders_and_counts_are_reported() -> None:
    event = event_of(lineage.Lineage(transfers(MANY), {MANIFEST: MANY + 3}).openlineage())
    assert statistics(event["inputs"]) == {
        ("s3://contracts", "in"): {"fileCount": 1667},
        ("https://example.com", "/p"): {"fileCount": 1667},
        ("file", "/mnt/old"): {"fileCount": 1666},
    }
    assert statistics(event["outputs"]) == {
        ("s3://texts", MANIFEST.key): {"rowCount": MANY + 3, "fileCount": 1},
        ("s3://texts", "dt=1"): {"fileCount": MANY, "size": sum(range(MANY))},
    }


@pytest.mark.parametrize(
    "source",
    [
        "https://{}.example.com/a",
        "https://example.com/{}/a/b/c?q=/x/y",
        "https://example.com/" + "ü" * 3000 + "/{}",
        "s3://b/" + "deep/" * 300 + "{}.pdf",
        "/mnt/M\udce4rz/{}.pdf",
        "/mnt/{}\n\x00\u202e\U0001f4a9.pdf",
        "{}",
        "://{}",
        "s3://{}",
        "https://user:pass@[::1]:99999/{}",
    ],
)
def test_odd_sources_give_a_small_event_that_can_be_sent(source: str) -> None:
    event = event_of(lineage.Lineage(transfers(MANY, (source,)), {MANIFEST: MANY}).openlineage())
    assert event["inputs"]
    assert statistics(event["outputs"])["s3://texts", "dt=1"] == {"fileCount": MANY, "size": sum(range(MANY))}
    few = event_of(lineage.Lineage(transfers(80, (source,))).openlineage(), MAX_MESSAGE_BYTES)
    assert len(few["inputs"]) == len(few["outputs"]) == 80


def assertions(event: dict[str, Any]) -> dict[str, list[bool]]:
    """Return whether the assertions on each text hold, by its name."""
    return {
        dataset["name"]: [
            one["success"] for one in dataset["inputFacets"]["dataQualityAssertions"]["assertions"]
        ]
        for dataset in event["inputs"]
        if "dataQualityAssertions" in dataset["inputFacets"]
    }


def test_of_many_texts_the_folder_has_the_assertions() -> None:
    texts = [Location(f"s3://c@texts/dt=1/{number}.txt") for number in range(MANY)]
    many = [
        lineage.Verdict(text, f"DORA: {n}", n != 3 or text != texts[9]) for text in texts for n in range(6)
    ]
    event = event_of(lineage.Lineage((), {MANIFEST: MANY, FINDINGS: 6 * MANY}, texts, many).openlineage())
    assert statistics(event["inputs"]) == {("s3://texts", "dt=1"): {"fileCount": MANY}}
    assert assertions(event) == {"dt=1": [False, True, True, True, True, True]}
    assert statistics(event["outputs"]) == {
        ("s3://texts", MANIFEST.key): {"rowCount": MANY, "fileCount": 1},
        ("s3://texts", FINDINGS.key): {"rowCount": 6 * MANY, "fileCount": 1},
    }


def test_a_long_criterion_is_shortened() -> None:
    text = Location("s3://c@texts/1.txt")
    given = [lineage.Verdict(text, f"{'x' * 10_000}{number}", is_sufficient=False) for number in range(100)]
    (found,) = event_of(lineage.Lineage((), {}, [text], given).openlineage())["inputs"]
    names = [dataset["assertion"] for dataset in found["inputFacets"]["dataQualityAssertions"]["assertions"]]
    assert len(set(names)) == 100
    assert all(name.endswith(lineage.SUFFICIENT) for name in names)
