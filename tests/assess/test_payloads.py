from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from airflow_provider.assess.payloads import DEFAULT_PAYLOAD, PayloadTemplate
from airflow_provider.exceptions import ComplianceInputError

DOCUMENT = {"uuid": "u-1", "source": "in/a.pdf", "bytes": 12}
FRAMEWORK = {"id": "7", "codeName": "DORA", "name": "Resilience"}


def test_the_default_names_the_document_and_the_framework() -> None:
    payload = PayloadTemplate(DEFAULT_PAYLOAD).render(DOCUMENT, FRAMEWORK)
    assert payload == {"contentUuid": "u-1", "framework": "DORA"}


def test_placeholders_are_filled_in_at_any_depth_and_keep_their_type_where_they_are_alone() -> None:
    template = {
        "a": [{"{framework[id]}": "{document[bytes]}"}],
        "b": "{document[uuid]}/{framework[codeName]}",
        "c": 1,
    }
    assert PayloadTemplate(template).render(DOCUMENT, FRAMEWORK) == {
        "a": [{"7": 12}],
        "b": "u-1/DORA",
        "c": 1,
    }


def test_a_value_with_braces_is_not_filled_in_again() -> None:
    document = DOCUMENT | {"source": "{framework[id]}"}
    assert PayloadTemplate(["{document[source]}", "x{document[source]}"]).render(document, FRAMEWORK) == [
        "{framework[id]}",
        "x{framework[id]}",
    ]


def test_other_braces_stay() -> None:
    assert PayloadTemplate({"a": "{} {x} {0}"}).render(DOCUMENT, FRAMEWORK) == {"a": "{} {x} {0}"}


def test_an_unknown_placeholder_is_refused_at_once() -> None:
    with pytest.raises(ComplianceInputError, match=r"\{doc\[uuid\]\}.*only document"):
        PayloadTemplate({"a": "{doc[uuid]}"})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{document[uid]}", r"document\[uid\].*'in/a\.pdf' has no such field. It has: bytes, source, uuid"),
        ("x {framework[code]}", r"framework\[code\].*'Resilience'.*It has: codeName, id, name"),
    ],
)
def test_an_unknown_field_is_refused_before_anything_is_sent(template: str, message: str) -> None:
    with pytest.raises(ComplianceInputError, match=message):
        PayloadTemplate({"a": template}).check([DOCUMENT], [FRAMEWORK])


def test_what_passes_the_check_can_be_rendered() -> None:
    template = PayloadTemplate({"name": "{document[source]} {framework[name]}"})
    template.check([DOCUMENT], [FRAMEWORK])
    assert template.render(DOCUMENT, FRAMEWORK) == {"name": "in/a.pdf Resilience"}


def custom(document: Any, framework: Any) -> Any:
    return [document["uuid"], framework["id"]]


def other(document: Any, framework: Any) -> Any:
    return [framework["id"], document["uuid"]]


def test_a_callable_gets_both() -> None:
    assert PayloadTemplate(custom).render(DOCUMENT, FRAMEWORK) == ["u-1", "7"]


def test_the_digest_tells_templates_apart() -> None:
    templates: list[Any] = [DEFAULT_PAYLOAD, {"a": 1}, custom, other]
    assert len({PayloadTemplate(each).digest({}) for each in templates}) == 4
    assert PayloadTemplate({"a": 1, "b": 2}).digest({}) == PayloadTemplate({"b": 2, "a": 1}).digest({})
    assert PayloadTemplate(custom).digest({}) == PayloadTemplate(custom).digest({})


def test_own_fields_of_a_document_count_and_those_of_its_job_do_not() -> None:
    template = PayloadTemplate({"id": "{document[uuid]}", "unit": "{document[unit]}"})
    one = template.digest({"uuid": "1", "unit": "HR", "owner": "a"})
    assert one == template.digest({"uuid": "2", "unit": "HR", "owner": "b"})
    assert one != template.digest({"uuid": "1", "unit": "IT", "owner": "a"})


def test_a_callable_whose_code_nobody_can_read_is_refused() -> None:
    with pytest.raises(ComplianceInputError, match="payload is partial, whose code can't be read"):
        PayloadTemplate(partial(custom)).digest({})


def make_payload(version: int) -> Any:
    def payload(document: Any, framework: Any) -> dict[str, Any]:
        return {"uuid": document["uuid"], "language": document.get("language"), "version": version}

    return payload


def test_values_that_a_callable_refers_to_count() -> None:
    document = {"uuid": "u", "sha256": "x"}
    first = PayloadTemplate(make_payload(1)).digest(document)
    assert PayloadTemplate(make_payload(1)).digest(document) == first
    assert PayloadTemplate(make_payload(2)).digest(document) != first


def test_own_fields_of_a_document_count_for_a_callable() -> None:
    template = PayloadTemplate(make_payload(1))
    german, english = ({"uuid": "u", "language": language} for language in ("de", "en"))
    assert template.digest(german) != template.digest(english)
    assert template.digest(german) == template.digest({**german, "uuid": "v", "attempts": 2})


def test_a_callable_that_changes_its_arguments_changes_no_other_payload() -> None:
    def payload(document: Any, framework: Any) -> Any:
        framework["uuid"] = document["uuid"]
        framework["nested"]["uuids"].append(document.pop("uuid"))
        return framework

    template, document, framework = (
        PayloadTemplate(payload),
        {"uuid": "a"},
        {"id": "1", "nested": {"uuids": []}},
    )
    first, second = template.render(document, framework), template.render({"uuid": "b"}, framework)
    assert (first["uuid"], first["nested"]["uuids"]) == ("a", ["a"])
    assert (second["uuid"], second["nested"]["uuids"]) == ("b", ["b"])
    assert (document, framework) == ({"uuid": "a"}, {"id": "1", "nested": {"uuids": []}})
