"""Lineage of texts and of the verdicts on them, for Airflow's collector and OpenLineage.

A few documents are named one by one. Of many, their folders are named, with counts, so that an event stays
small however large a shard is. The manifest lists every document.
"""

from __future__ import annotations

import heapq
import logging
import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from airflow_provider.client.http.redaction import redact
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import digest, to_bytes

if TYPE_CHECKING:
    from airflow_provider.client.models import ContentJob
    from airflow_provider.hooks.compliance import ComplianceHook

log = logging.getLogger(__name__)

# A bucket has one name in lineage, whichever scheme its URI uses.
_SCHEMES = {"gcs": "gs", "s3a": "s3", "s3n": "s3"}
_SCHEMES_WITH_PATHS = frozenset({"file", "http", "https", "compliance"})  # the others have keys
SUFFICIENT = "is sufficiently regulated"  # ends the name of an assertion
MAX_DATASETS = 90  # inputs or outputs of one task; Airflow's collector accepts 100, also from others
MAX_ASSERTIONS = 1_000  # of one event, which has to fit into a message of a broker
MAX_CRITERION_CHARS = 300
MAX_NIGHT_INPUTS = 100  # manifests of one event
MAX_FOLDERS = 24
MAX_NAME_CHARS = 1_500  # as many as Airflow stores of an asset's URI

Dataset = tuple[str, str]
"""A store, host or bucket, such as `s3://bucket`, and a name in it that starts with a slash."""
_Member = tuple[str, tuple[str, ...], int]  # namespace, folders from the top, bytes


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
    """Parse the URI of a web page or a file; drop the Airflow connection or login, and redact secrets."""
    source = redact(source)
    # Neither Airflow nor OpenLineage can store invalid UTF-8.
    source = re.sub("[\ud800-\udfff]+", lambda match: quote(to_bytes(match[0])), source)
    scheme, separator, rest = source.partition("://")
    if not separator:
        return "file://", scheme
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    return f"{scheme.lower()}://{authority.rpartition('@')[2]}", rest.removeprefix(authority) or "/"


def report(hook: ComplianceHook, transfers: Iterable[Transfer], tables: Iterable[Location] = ()) -> None:
    """Report to Airflow's hook lineage collector.

    :param tables: what was written besides the texts, such as a manifest
    """
    many = list(transfers)
    _collect(
        hook,
        {each.origin: 0 for each in many},
        {uri_origin(each.target.address): each.bytes for each in many},
        tables,
    )


def report_assessment(hook: ComplianceHook, texts: Iterable[Location], tables: Iterable[Location]) -> None:
    """Report to Airflow's hook lineage collector which texts were assessed, and the tables with verdicts."""
    _collect(hook, {uri_origin(each.address): 0 for each in texts}, {}, tables)


def _collect(
    hook: ComplianceHook,
    inputs: Mapping[Dataset, int],
    outputs: Mapping[Dataset, int],
    tables: Iterable[Location],
) -> None:
    """Add assets to Airflow's collector, not as many as would let it drop some and warn."""
    from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector
    from airflow.providers.common.compat.sdk import conf

    collector = get_hook_lineage_collector()
    limit = min(MAX_DATASETS, conf.getint("lineage", "max_assets_per_collector", fallback=100) - 1)
    written = {uri_origin(each.address): Extent(1, 0, is_folder=False) for each in tables}
    written |= summarize(outputs, limit - len(written))
    for add, found in (
        (collector.add_input_asset, summarize(inputs, limit)),
        (collector.add_output_asset, written),
    ):
        for dataset, extent in found.items():
            uri = "".join(dataset)
            extra = {"asset_extra": {"files": extent.files}} if extent.is_folder else {}
            try:
                add(context=hook, uri=uri, **extra)
            except Exception as error:  # a URI that Airflow refuses must not fail the task
                log.debug("No lineage of '%s': %s", uri, error)


def openlineage(transfers: Iterable[Transfer], tables: Mapping[Location, int] | None = None) -> Any:
    """Return OpenLineage's record of an operator; only called if its provider is installed.

    :param tables: what was written besides the texts, with the number of rows
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    many, written = list(transfers), _table_datasets(tables or {})
    inputs = summarize({each.origin: 0 for each in many}, MAX_DATASETS)
    texts = {uri_origin(each.target.address): each.bytes for each in many}
    outputs = summarize(texts, MAX_DATASETS - len(written))
    return OperatorLineage(
        inputs=[_input(dataset, extent) for dataset, extent in inputs.items()],
        outputs=[
            *written,
            *(
                _output(dataset, size=extent.bytes, fileCount=extent.files)
                for dataset, extent in outputs.items()
            ),
        ],
    )


def openlineage_assessment(
    texts: Iterable[Location], verdicts: Iterable[Verdict], tables: Mapping[Location, int]
) -> Any:
    """Return OpenLineage's record of an assessment: each criterion is an assertion on a text.

    Of more than `MAX_ASSERTIONS`, those that do not hold come first. Of more than `MAX_DATASETS` texts, only
    those with these assertions are named, and the folders of all.

    :param tables: what was written, with the number of rows
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.generated import data_quality_assertions_dataset as quality

    inputs = summarize({uri_origin(each.address): 0 for each in texts}, MAX_DATASETS)
    is_summary = any(each.is_folder for each in inputs.values())
    assertions: dict[Dataset, list[Any]] = {}
    for each in _select(verdicts, MAX_DATASETS - len(inputs) if is_summary else MAX_DATASETS):
        name = f"{shorten(each.criterion, MAX_CRITERION_CHARS)} {SUFFICIENT}"
        text = shorten_dataset(uri_origin(each.text.address))
        assertion = quality.Assertion(assertion=name, success=each.is_sufficient)
        assertions.setdefault(text, []).append(assertion)
    named = dict.fromkeys(assertions, Extent(1, 0, is_folder=False))
    return OperatorLineage(
        inputs=[
            _input(
                dataset,
                extent,
                {"dataQualityAssertions": quality.DataQualityAssertionsDatasetFacet(assertions[dataset])}
                if dataset in assertions
                else {},
            )
            for dataset, extent in (inputs | named).items()
        ],
        outputs=_table_datasets(tables),
    )


def openlineage_night(manifests: Sequence[str], record: str) -> Any:
    """Return OpenLineage's record of a closed night; only called if its provider is installed.

    :param manifests: their URIs; of more than `MAX_NIGHT_INPUTS`, the folder that all are below is named
    :param record: the URI of the record of the night
    """
    inputs = manifests if len(manifests) <= MAX_NIGHT_INPUTS else [common_folder(manifests)]
    return openlineage_assessment([Location(each) for each in inputs], (), {Location(record): 1})


def common_folder(uris: Sequence[str]) -> str:
    """Return the folder that all are below."""
    first, last = min(uris).split("/"), max(uris).split("/")
    common = next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), 0)
    return "/".join(first[:common]) + "/"


def _select(verdicts: Iterable[Verdict], max_texts: int) -> Iterator[Verdict]:
    """Yield as many verdicts as one event has room for, on at most so many texts; first those that fail."""
    kept: dict[bool, list[Verdict]] = {False: [], True: []}
    texts: dict[bool, set[str]] = {False: set(), True: set()}
    for each in verdicts:
        some, of = kept[each.is_sufficient], texts[each.is_sufficient]
        if len(some) < MAX_ASSERTIONS and (each.text.uri in of or len(of) < max_texts):
            some.append(each)
            of.add(each.text.uri)
    named: set[str] = set()
    count = 0
    for each in kept[False] + kept[True]:
        if count < MAX_ASSERTIONS and (each.text.uri in named or len(named) < max_texts):
            named.add(each.text.uri)
            count += 1
            yield each


def _table_datasets(tables: Mapping[Location, int]) -> list[Any]:
    return [
        _output(uri_origin(location.address), rowCount=rows, fileCount=1) for location, rows in tables.items()
    ]


def _input(dataset: Dataset, extent: Extent, facets: Mapping[str, Any] | None = None) -> Any:
    from airflow.providers.common.compat.openlineage.facet import InputDataset

    found = dict(facets or {})
    if extent.is_folder:
        try:
            from openlineage.client.generated.input_statistics_input_dataset import (
                InputStatisticsInputDatasetFacet,
            )
        except ImportError:  # an older client
            pass
        else:
            found["inputStatistics"] = InputStatisticsInputDatasetFacet(fileCount=extent.files)
    return InputDataset(*_openlineage_name(dataset), inputFacets=found)


def _output(dataset: Dataset, **statistics: int) -> Any:
    from airflow.providers.common.compat.openlineage.facet import (
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )

    facets = {"outputStatistics": OutputStatisticsOutputDatasetFacet(**statistics)}
    return OutputDataset(*_openlineage_name(dataset), outputFacets=facets)


def _openlineage_name(dataset: Dataset) -> Dataset:
    """Return a dataset under the name that other integrations use for it."""
    namespace, name = dataset
    scheme, _, authority = namespace.partition("://")
    if scheme == "file":
        return f"file://{authority}" if authority else "file", name
    if scheme in _SCHEMES_WITH_PATHS:
        return dataset
    return f"{_SCHEMES.get(scheme, scheme)}://{authority}", name.removeprefix("/") or "/"


class Extent(NamedTuple):
    """How much a dataset is: one file, or what is used of a folder."""

    files: int
    bytes: int
    is_folder: bool


def summarize(sizes: Mapping[Dataset, int], limit: int) -> dict[Dataset, Extent]:
    """Return these datasets if they are not more than the limit, else the folders that contain them.

    :param sizes: the bytes of each
    """
    sizes = {shorten_dataset(each): size for each, size in sizes.items()}
    if len(sizes) <= limit:
        return {each: Extent(1, size, is_folder=False) for each, size in sizes.items()}
    return _find_folders(sizes, max(min(limit, MAX_FOLDERS), 0))


def _find_folders(sizes: Mapping[Dataset, int], limit: int) -> dict[Dataset, Extent]:
    """Return folders that contain all datasets and not each other: the deepest that the limit allows.

    Of more hosts and buckets than that, those with the most datasets are returned.
    """
    # Sorted, so that all of a folder are neighbors, and what is in no deeper one comes first.
    members = sorted(
        (namespace, _parents(namespace, name), size) for (namespace, name), size in sizes.items()
    )
    stores = [list(each) for _, each in groupby(members, key=lambda member: member[0])]
    largest = [(-len(each), each) for each in heapq.nlargest(limit, stores, key=len)]
    heapq.heapify(largest)
    folders: dict[Dataset, Extent] = {}
    while largest:
        _, members = heapq.heappop(largest)
        (namespace, first, _), last = members[0], members[-1][1]
        depth = len(os.path.commonprefix([first, last]))
        children = _split(members, depth) if len(first) > depth else []
        if children and len(folders) + len(largest) + len(children) <= limit:
            for child in children:
                heapq.heappush(largest, (-len(child), child))
        else:
            extent = Extent(len(members), sum(size for _, _, size in members), is_folder=True)
            folders[namespace, "/".join(first[:depth]) or "/"] = extent
    return dict(sorted(folders.items()))


def _split(members: list[_Member], depth: int) -> list[list[_Member]]:
    return [list(each) for _, each in groupby(members, key=lambda member: member[1][depth])]


def _parents(namespace: str, name: str) -> tuple[str, ...]:
    """Return the folders that a dataset is in, from the top."""
    if namespace.startswith(("http://", "https://")):
        name = re.split("[?#]", name, maxsplit=1)[0]
    return tuple(name.split("/")[:-1])


def shorten_dataset(dataset: Dataset) -> Dataset:
    """Return a dataset whose names are not too long for a catalog."""
    return shorten(dataset[0], MAX_NAME_CHARS), shorten(dataset[1], MAX_NAME_CHARS)


def shorten(name: str, limit: int) -> str:
    """Return a name that is not too long; different names stay different."""
    return name if len(name) <= limit else f"{name[:limit]}~{digest(name)}"
