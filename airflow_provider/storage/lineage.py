"""Lineage of texts and of the verdicts on them, for Airflow's collector and OpenLineage.

Up to `MAX_DATASETS` documents are named one by one. Of more, the common folder in each store is named, with
the number of files, so an event stays small however large a shard is. The manifest lists every document.
"""

from __future__ import annotations

import logging
import os.path
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from airflow_provider.redaction.addresses import redact
from airflow_provider.runtime.object_paths import OBJECT_STORES
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import digest, to_bytes

if TYPE_CHECKING:
    from airflow_provider.client.models import ContentJob
    from airflow_provider.hooks.compliance import ComplianceHook

log = logging.getLogger(__name__)

_SCHEMES_WITH_PATHS = frozenset({"file", "http", "https", "compliance"})  # the others have keys
SUFFICIENT = "is sufficiently regulated"  # ends the name of an assertion
MAX_DATASETS = 90  # inputs or outputs of one task; Airflow's collector accepts 100 from all sources
MAX_ASSERTIONS = 1_000  # for one event, which has to fit into a message of a broker
MAX_CRITERION_CHARS = 300
MAX_NAME_CHARS = 1_500  # as many as Airflow stores of an asset's URI

Origin = tuple[str, str]
"""A store, host or bucket, such as `s3://bucket`, and a name in it that starts with a slash."""


class Dataset(NamedTuple):
    """A file, or a folder that stands for many.

    :param files: how many are used of a folder; None for a file
    :param rows: the rows of a table; None for other files
    """

    origin: Origin
    bytes: int = 0
    files: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Transfer:
    """A stored text.

    :param origin: its document: a web page, or a file by the name that the service knows
    :param target: where it is
    :param bytes: its size
    """

    origin: Origin
    target: Location
    bytes: int


@dataclass(frozen=True)
class Verdict:
    """A verdict on a text, or an expert's on the service.

    :param text: where it is; of golden documents their manifest
    :param criterion: framework and criterion
    :param is_sufficient: whether the text regulates it sufficiently, or what else is asserted holds
    :param assertion: about the criterion
    """

    text: Location
    criterion: str
    is_sufficient: bool
    assertion: str = SUFFICIENT


def job_origin(job: ContentJob, host: str) -> Origin:
    """Return the document of a job; of a file, the service knows only the name."""
    if job.source_url:
        return uri_origin(job.source_url)
    return f"compliance://{host}", f"/{quote(job.file_name or job.uuid)}"


def uri_origin(source: str) -> Origin:
    """Parse the URI of a web page or a file; drop the Airflow connection or login, and redact secrets."""
    source = redact(source)
    # Neither Airflow nor OpenLineage can store invalid UTF-8.
    source = re.sub("[\ud800-\udfff]+", lambda match: quote(to_bytes(match[0])), source)
    scheme, separator, rest = source.partition("://")
    if not separator:
        return "file://", scheme
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    return f"{scheme.lower()}://{authority.rpartition('@')[2]}", rest.removeprefix(authority) or "/"


@dataclass(frozen=True)
class Lineage:
    """Files that a task read and wrote.

    :param transfers: the texts that it stored
    :param tables: the tables that it wrote besides texts, with the number of rows
    :param texts: the texts that it read besides documents
    :param verdicts: each is an assertion on a text, for OpenLineage; read once
    """

    transfers: Sequence[Transfer] = ()
    tables: Mapping[Location, int] = field(default_factory=dict)
    texts: Collection[Location] = ()
    verdicts: Iterable[Verdict] = ()

    def report(self, hook: ComplianceHook) -> None:
        """Report to Airflow's hook lineage collector."""
        from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

        inputs, outputs = self._datasets()
        collector = get_hook_lineage_collector()
        for add, datasets in ((collector.add_input_asset, inputs), (collector.add_output_asset, outputs)):
            for dataset in datasets:
                uri = "".join(dataset.origin)
                extra = {} if dataset.files is None else {"asset_extra": {"files": dataset.files}}
                try:
                    add(context=hook, uri=uri, **extra)
                except Exception as error:  # a URI that Airflow refuses must not fail the task
                    log.debug("No lineage of '%s': %s", uri, error)

    def openlineage(self) -> Any:
        """Return OpenLineage's record of an operator; only called if its provider is installed."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        inputs, outputs = self._datasets()
        assertions = _assert(self.verdicts, inputs)
        return OperatorLineage(
            inputs=[_input(dataset, assertions.get(dataset.origin)) for dataset in inputs],
            outputs=list(map(_output, outputs)),
        )

    def _datasets(self) -> tuple[list[Dataset], list[Dataset]]:
        """Return inputs and outputs."""
        from airflow.providers.common.compat.sdk import conf

        # Airflow's collector drops names beyond its limit, and warns.
        limit = min(MAX_DATASETS, conf.getint("lineage", "max_assets_per_collector", fallback=100) - 1)
        read = [(transfer.origin, 0) for transfer in self.transfers]
        read += [(uri_origin(text.address), 0) for text in self.texts]
        written = [(uri_origin(transfer.target.address), transfer.bytes) for transfer in self.transfers]
        found = [Dataset(uri_origin(table.address), rows=rows) for table, rows in self.tables.items()]
        return to_datasets(read, limit), [*found, *to_datasets(written, limit - len(found))]


def _assert(verdicts: Iterable[Verdict], inputs: Iterable[Dataset]) -> dict[Origin, Any]:
    """Return OpenLineage's assertions on inputs: one for each criterion of a text.

    For more than `MAX_DATASETS` texts, one on the folder, which holds if it holds for each text. Beyond
    `MAX_ASSERTIONS`, failed assertions are kept.
    """
    from openlineage.client.generated import data_quality_assertions_dataset as quality

    folders = {dataset.origin[0]: dataset.origin for dataset in inputs if dataset.files is not None}
    holds: dict[tuple[Origin, str], bool] = {}
    for verdict in verdicts:
        text = shorten_origin(uri_origin(verdict.text.address))
        named = f"{shorten(verdict.criterion, MAX_CRITERION_CHARS)} {verdict.assertion}"
        key = folders.get(text[0], text), named
        holds[key] = holds.get(key, True) and verdict.is_sufficient
    assertions: dict[Origin, list[Any]] = {}
    for (origin, named), success in islice(sorted(holds.items(), key=lambda one: one[1]), MAX_ASSERTIONS):
        assertions.setdefault(origin, []).append(quality.Assertion(assertion=named, success=success))
    return {origin: quality.DataQualityAssertionsDatasetFacet(some) for origin, some in assertions.items()}


def _input(dataset: Dataset, assertions: Any) -> Any:
    from airflow.providers.common.compat.openlineage.facet import InputDataset

    facets: dict[str, Any] = {"dataQualityAssertions": assertions} if assertions else {}
    if dataset.files is not None:
        with suppress(ImportError):  # an older client
            from openlineage.client.generated import input_statistics_input_dataset as statistics

            facets["inputStatistics"] = statistics.InputStatisticsInputDatasetFacet(fileCount=dataset.files)
    return InputDataset(*_openlineage_name(dataset.origin), inputFacets=facets)


def _output(dataset: Dataset) -> Any:
    from airflow.providers.common.compat.openlineage.facet import (
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )

    statistics = {"size": dataset.bytes} if dataset.rows is None else {"rowCount": dataset.rows}
    files = 1 if dataset.files is None else dataset.files
    facets = {"outputStatistics": OutputStatisticsOutputDatasetFacet(fileCount=files, **statistics)}
    return OutputDataset(*_openlineage_name(dataset.origin), outputFacets=facets)


def _openlineage_name(origin: Origin) -> Origin:
    """Return the name that other integrations use for a dataset."""
    namespace, name = origin
    scheme, _, authority = namespace.partition("://")
    if scheme == "file":
        return f"file://{authority}" if authority else "file", name
    if scheme in _SCHEMES_WITH_PATHS:
        return origin
    # A bucket has one name in lineage for all schemes of its URI.
    return f"{OBJECT_STORES.get(scheme, scheme)}://{authority}", name.removeprefix("/") or "/"


def to_datasets(files: Iterable[tuple[Origin, int]], limit: int) -> list[Dataset]:
    """Return a dataset for each file with its size; of more than the limit, the folder in each store.

    Of more hosts and buckets than the limit, those with the most files are returned.
    """
    sizes = {shorten_origin(origin): size for origin, size in files}
    if len(sizes) <= limit:
        return [Dataset(origin, size) for origin, size in sizes.items()]
    stores: dict[str, list[tuple[str, int]]] = {}
    for (namespace, name), size in sizes.items():
        stores.setdefault(namespace, []).append((name, size))
    largest = sorted(stores.items(), key=lambda store: len(store[1]), reverse=True)[: max(0, limit)]
    return [_to_folder(namespace, members) for namespace, members in largest]


def _to_folder(namespace: str, members: Sequence[tuple[str, int]]) -> Dataset:
    is_page = namespace.startswith(("http://", "https://"))
    names = (re.split("[?#]", name, maxsplit=1)[0] if is_page else name for name, _ in members)
    folders = [name.split("/")[:-1] for name in names]
    common = "/".join(os.path.commonprefix([min(folders), max(folders)])) or "/"
    return Dataset((namespace, common), sum(size for _, size in members), len(members))


def shorten_origin(origin: Origin) -> Origin:
    """Return an origin whose names are not too long for a catalog."""
    return shorten(origin[0], MAX_NAME_CHARS), shorten(origin[1], MAX_NAME_CHARS)


def shorten(name: str, limit: int) -> str:
    """Return a name that is not too long; different names stay different."""
    return name if len(name) <= limit else f"{name[:limit]}~{digest(name)}"
