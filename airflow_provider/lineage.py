"""Lineage of texts and of the verdicts on them, for Airflow's collector and OpenLineage."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import to_bytes

if TYPE_CHECKING:
    from airflow_provider.client.models import ContentJob
    from airflow_provider.hooks.compliance import ComplianceHook

log = logging.getLogger(__name__)

Dataset = tuple[str, str]  # namespace and name, as in OpenLineage
# A bucket has one name in lineage, whichever scheme its URI uses.
_SCHEMES = {"gcs": "gs", "s3a": "s3", "s3n": "s3"}
SUFFICIENT = "is sufficiently regulated"  # ends the name of an assertion
MAX_ASSERTIONS = 1_000  # of one event, which has to fit into a message of a broker


@dataclass(frozen=True)
class Transfer:
    """A stored text.

    :param origin: its document: a web page, or a file by the name that the service knows
    :param target: where it is
    :param bytes: its size
    """

    origin: Dataset
    target: Location
    bytes: int


@dataclass(frozen=True)
class Verdict:
    """What a framework says about a text.

    :param text: where it is
    :param criterion: framework and criterion
    :param is_sufficient: whether the text regulates it sufficiently
    """

    text: Location
    criterion: str
    is_sufficient: bool


def job_origin(job: ContentJob, host: str) -> Dataset:
    """Return the document of a job; of a file, the service knows only the name."""
    if job.source_url:
        return uri_origin(job.source_url)
    return f"compliance://{host}", f"/{quote(job.file_name or job.uuid)}"


def uri_origin(source: str) -> Dataset:
    """Parse the URI of a web page or a file; drop the Airflow connection or login in it."""
    # Neither Airflow nor OpenLineage can store invalid UTF-8.
    source = re.sub("[\ud800-\udfff]+", lambda match: quote(to_bytes(match[0])), source)
    scheme, separator, rest = source.partition("://")
    if not separator:
        return "file://", scheme
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    return f"{scheme.lower()}://{authority.rpartition('@')[2]}", rest.removeprefix(authority) or "/"


def report(hook: ComplianceHook, transfers: Iterable[Transfer]) -> None:
    """Report to Airflow's hook lineage collector."""
    from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

    collector = get_hook_lineage_collector()
    for transfer in transfers:
        try:
            collector.add_input_asset(context=hook, uri="".join(transfer.origin))
            collector.add_output_asset(context=hook, uri=transfer.target.address)
        except Exception as error:  # a URI that Airflow refuses must not fail the task
            log.debug("No lineage of '%s': %s", transfer.target, error)


def report_assessment(hook: ComplianceHook, texts: Iterable[Location], tables: Iterable[Location]) -> None:
    """Report to Airflow's hook lineage collector which texts were assessed, and the tables with verdicts."""
    from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

    collector = get_hook_lineage_collector()
    for add, locations in ((collector.add_input_asset, texts), (collector.add_output_asset, tables)):
        for each in locations:
            try:
                add(context=hook, uri=each.address)
            except Exception as error:  # a URI that Airflow refuses must not fail the task
                log.debug("No lineage of '%s': %s", each, error)


def openlineage(transfers: Iterable[Transfer]) -> Any:
    """Return OpenLineage's record of an operator; only called if its provider is installed."""
    from airflow.providers.common.compat.openlineage.facet import (
        InputDataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )
    from airflow.providers.openlineage.extractors import OperatorLineage

    many = list(transfers)
    return OperatorLineage(
        inputs=[InputDataset(*origin) for origin in dict.fromkeys(each.origin for each in many)],
        outputs=[
            OutputDataset(
                *_dataset(each.target),
                outputFacets={
                    "outputStatistics": OutputStatisticsOutputDatasetFacet(size=each.bytes, fileCount=1)
                },
            )
            for each in many
        ],
    )


def openlineage_assessment(
    texts: Iterable[Location], verdicts: Iterable[Verdict], tables: Mapping[Location, int]
) -> Any:
    """Return OpenLineage's record of an assessment: each criterion is an assertion on a text.

    Of more than `MAX_ASSERTIONS`, those that do not hold come first.

    :param tables: what was written, with the number of rows
    """
    from airflow.providers.common.compat.openlineage.facet import (
        InputDataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.generated import data_quality_assertions_dataset as quality

    kept: dict[bool, list[Verdict]] = {False: [], True: []}
    for each in verdicts:
        if len(kept[each.is_sufficient]) < MAX_ASSERTIONS:
            kept[each.is_sufficient].append(each)
    assertions: dict[Dataset, list[Any]] = {}
    for each in (kept[False] + kept[True])[:MAX_ASSERTIONS]:
        assertion = quality.Assertion(assertion=f"{each.criterion} {SUFFICIENT}", success=each.is_sufficient)
        assertions.setdefault(_dataset(each.text), []).append(assertion)
    return OperatorLineage(
        inputs=[
            InputDataset(
                *dataset,
                inputFacets={
                    "dataQualityAssertions": quality.DataQualityAssertionsDatasetFacet(assertions[dataset])
                }
                if dataset in assertions
                else {},
            )
            for dataset in dict.fromkeys(map(_dataset, texts))
        ],
        outputs=[
            OutputDataset(
                *_dataset(location),
                outputFacets={
                    "outputStatistics": OutputStatisticsOutputDatasetFacet(rowCount=rows, fileCount=1)
                },
            )
            for location, rows in tables.items()
        ],
    )


def _dataset(location: Location) -> Dataset:
    if location.protocol == "file":
        return "file", location.path
    scheme = _SCHEMES.get(location.protocol, location.protocol)
    return f"{scheme}://{location.container}", location.key
