"""The catalog: fingerprints, storage, comparison and event payload."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.client.models import Framework
from airflow_provider.waiting.frameworks import catalog as module
from airflow_provider.waiting.frameworks.catalog import (
    EMPTY,
    Catalog,
    compare,
    compare_rules,
    fingerprint,
    rules_of,
    same_criteria,
    summarize_changes,
)
from airflow_provider.waiting.frameworks.watcher import MAX_IDS_CHARS, build_payload, event_id

DORA: dict[str, Any] = {
    "id": 1,
    "name": "Resilience",
    "codeName": "DORA",
    "criteria": [
        {"name": "Exit strategies", "codeName": "D-1", "description": "A transition period."},
        {"name": "Audit rights", "codeName": "D-2", "levels": ["low", "high"], "weight": {"of": 3}},
    ],
}
GDPR = {"id": 2, "name": "Personal data", "codeName": "GDPR", "description": "Of a controller."}


def catalog(*frameworks: dict[str, Any]) -> Catalog:
    return Catalog.parse(Framework.model_validate(framework) for framework in frameworks)


def reload(one: Catalog) -> Catalog:
    """Return the catalog as it is read back from the stored state."""
    return Catalog.load(json.loads(json.dumps(one.dump())))


def sent(before: Catalog, after: Catalog) -> dict[str, Any]:
    event = build_payload(compare(before, after), before, after, "c")
    assert json.loads(json.dumps(event)) == event
    return event


def edited(*path: Any, value: Any) -> dict[str, Any]:
    """Return DORA with another value at a path."""
    record: Any = copy.deepcopy(DORA)
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return dict(record)


@pytest.mark.parametrize(
    "changed",
    [
        edited("name", value="resilience"),
        edited("description", value=""),
        edited("version", value=2),
        edited("version", value={"of": "the law"}),
        edited("id", value="1"),
        edited("criteria", value=DORA["criteria"][::-1]),
        edited("criteria", value=DORA["criteria"][:1]),
        edited("criteria", value=[*DORA["criteria"], 7]),
        edited("criteria", 0, "description", value="Two transition periods."),
        edited("criteria", 0, "description", value=None),
        edited("criteria", 1, "levels", value=["high", "low"]),
        edited("criteria", 1, "weight", "of", value="3"),
        edited("criteria", 1, "weight", "of", value=3.5),
        edited("criteria", 1, "weight", "of", value=True),
    ],
)
def test_fingerprint_sees_every_change_of_what_the_service_lists(changed: dict[str, Any]) -> None:
    one, other = Framework.model_validate(DORA), Framework.model_validate(changed)
    assert fingerprint(one) != fingerprint(other)
    assert [each.kind for each in compare(catalog(DORA, GDPR), catalog(GDPR, changed))] == ["changed"]


def test_order_of_fields_and_of_frameworks_makes_no_difference() -> None:
    shuffled = dict(reversed(DORA.items()))
    assert catalog(DORA, GDPR).digest == catalog(GDPR, shuffled).digest
    assert not compare(catalog(DORA, GDPR), catalog(GDPR, shuffled))


def test_event_lists_ids_and_kinds_of_change() -> None:
    before, after = catalog(DORA, GDPR), catalog(edited("name", value="New"), {"id": "n", "codeName": "NIS2"})
    event = sent(reload(before), after)
    assert event.pop("noticed_at")
    assert event == {
        "id": event_id(before, after),
        "conn_id": "c",
        "summary": "1 framework added (NIS2); 1 framework removed (2); 1 framework changed (DORA)",
        "first_snapshot": False,
        "framework_ids": ["1", "n"],
        "frameworks": {"added": ["n"], "removed": ["2"], "changed": ["1"]},
        "left_out": 0,
    }


def test_a_framework_without_an_id_is_identified_by_a_name() -> None:
    found = catalog({"codeName": "A"}, {"name": "B"}, {"criteria": [{}]}, {"id": "\0\ud800"}).fingerprints
    assert found is not None
    assert list(found) == ["A", "B", "", "\ufffd?"]  # databases refuse NUL and lone surrogates


def test_frameworks_with_the_same_id_count_as_one() -> None:
    twins = [{"id": 1, "name": "b"}, {"id": 1, "name": "a"}, {"id": 1, "name": "c"}]
    assert catalog(*twins).digest == catalog(*twins[::-1]).digest
    assert [each.kind for each in compare(catalog(*twins), catalog(*twins[:2]))] == ["changed"]


def test_stored_catalog_has_no_texts() -> None:
    one = catalog(DORA)
    assert one.dump() == {
        "digest": one.digest,
        "fingerprints": {"1": fingerprint(Framework.model_validate(DORA))[:16]},
    }


@pytest.mark.parametrize(
    "stored", [{"digest": "d"}, {"digest": 1, "fingerprints": {}}, {"digest": "d", "fingerprints": 7}]
)
def test_anything_else_is_not_a_stored_catalog(stored: Any) -> None:
    with pytest.raises(ValueError, match="not a stored catalog"):
        Catalog.load(stored)


def test_any_framework_may_have_changed_if_there_were_too_many_to_store() -> None:
    frameworks = [{"id": number} for number in range(3_000)]
    one = catalog(*frameworks)
    assert len(json.dumps(one.dump())) < module.MAX_STORED_CHARS
    assert not compare(reload(one), one)
    event = sent(reload(one), catalog(*frameworks[1:]))
    assert event["summary"].startswith("2999 frameworks changed (1, 10, 100, 1000, 1001 and 2994 more)")
    assert len(event["framework_ids"]) + event["left_out"] == 2_999
    assert len(json.dumps(event)) < 3 * MAX_IDS_CHARS


def test_an_event_is_small_and_its_ids_are_whole() -> None:
    ids = [f"{number}" + "\N{SNOWMAN}" * 100 for number in range(100)]
    event = sent(EMPTY, catalog(*[{"id": each} for each in ids]))
    assert event["first_snapshot"]
    assert set(event["framework_ids"]) < set(ids)
    assert len(json.dumps(event)) < 3 * MAX_IDS_CHARS
    assert len(event["framework_ids"]) + event["left_out"] == 100
    assert "…, " in event["summary"]


def test_a_change_has_the_same_id_for_every_watcher() -> None:
    one, two = catalog(GDPR), catalog(DORA)
    assert event_id(one, two) == event_id(reload(one), catalog(DORA))
    assert len({event_id(one, two), event_id(two, one), event_id(EMPTY, one)}) == 3


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "0", "\0", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=4,
)
RECORDS = st.dictionaries(st.sampled_from(["name", "description", "criteria", "other"]), VALUES, max_size=3)
CATALOGS = st.dictionaries(st.sampled_from(["1", "2", "3"]), RECORDS, max_size=3)


@settings(max_examples=100, deadline=None)
@given(CATALOGS, CATALOGS, st.randoms())
def test_there_is_a_change_exactly_where_a_record_differs(
    first: dict[str, Any], second: dict[str, Any], jitter: random.Random
) -> None:
    before = catalog(*[{"id": key, **record} for key, record in first.items()])
    shuffled = list(second.items())
    jitter.shuffle(shuffled)
    after = catalog(*[{"id": key, **record} for key, record in shuffled])
    changes = compare(reload(before), after)
    both = first.keys() & second.keys()
    assert {(each.kind, each.key) for each in changes} == {
        *(("added", key) for key in second.keys() - first.keys()),
        *(("removed", key) for key in first.keys() - second.keys()),
        *(
            ("changed", key)
            for key in both
            if json.dumps(first[key], sort_keys=True) != json.dumps(second[key], sort_keys=True)
        ),
    }
    assert bool(summarize_changes(changes)) == bool(changes)


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ([{"codeName": "C", "name": "n"}], [{"name": "n", "codeName": "C"}], []),
        ([{"name": "C", "text": "old"}], [{"name": "C", "text": "new"}], [("C", "text", "old", "new")]),
        ([], [{"codeName": "C", "level": 3}], [("C", "codeName", "", "C"), ("C", "level", "", "3")]),
        ([{"name": "C"}], [], [("C", "name", "C", "")]),
        ([{"name": "C"}, {"name": "C", "n": 1}], [{"name": "C"}, {"name": "C"}], [("C (1)", "n", "1", "")]),
        ([7], [8], [("0", "", "7", "8")]),
        (None, "odd", []),
    ],
)  # fmt: skip
def test_changed_rules_are_listed_by_criterion_and_field(before: Any, after: Any, changes: list[Any]) -> None:
    one, other = ({**DORA, "criteria": criteria} for criteria in (before, after))
    rules = [rules_of(Framework.model_validate(record)) for record in (one, other)]
    assert list(compare_rules(*rules)) == changes


def test_changed_field_of_a_framework_is_listed() -> None:
    rules = [rules_of(Framework.model_validate({**DORA, "description": text})) for text in ("old", "new")]
    assert list(compare_rules(*rules)) == [("", "description", "old", "new")]


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, {"C-1", "C-2"}),
        ({"criteria": [{"codeName": "C-1", "text": "new"}, {"codeName": "C-2"}]}, {"C-2"}),
        ({"criteria": [{"codeName": "C-2"}, {"codeName": "C-3"}]}, {"C-2"}),
        ({"description": "new"}, set()),  # which may change what every criterion means
    ],
)
def test_criteria_with_the_same_rules_are_known(changes: dict[str, Any], same: set[str]) -> None:
    before = {**DORA, "criteria": [{"codeName": "C-1", "text": "old"}, {"codeName": "C-2"}]}
    rules = [rules_of(Framework.model_validate(record)) for record in (before, before | changes)]
    assert same_criteria(*rules) - {""} == same


def test_rules_are_canonical_json_and_their_hash_is_the_fingerprint() -> None:
    record = Framework.model_validate({"name": "ä", "id": "1"})
    assert rules_of(record) == b'{"id":"1","name":"\\u00e4"}'
    assert fingerprint(record) == hashlib.sha256(rules_of(record)).hexdigest()
