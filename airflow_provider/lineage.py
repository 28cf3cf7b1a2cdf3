"""What was made of what, told to whoever collects lineage."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import to_bytes

if TYPE_CHECKING:
    from airflow_provider.client.models import ContentJob
    from airflow_provider.hooks.compliance import ComplianceHook

log = logging.getLogger(__name__)

Dataset = tuple[str, str]  # namespace and name, as OpenLineage has them
# One bucket is one thing in lineage, however its address is written.
_SCHEMES = {"gcs": "gs", "s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True)
class Origin:
    """The document behind a job: a web page, or a file as the service knows it."""

    namespace: str
    name: str

    @classmethod
    def from_job(cls, job: ContentJob, host: str) -> Origin:
        """Tell where a job's document came from; of a file, the service knows the name alone."""
        if job.source_url:
            return cls.from_uri(job.source_url)
        return cls(f"compliance://{host}", f"/{quote(job.file_name or job.uuid)}")

    @classmethod
    def from_uri(cls, source: str) -> Origin:
        """Tell a web page or a file by its address, without the Airflow connection or a login in it."""
        scheme, separator, rest = _encoded(source).partition("://")
        if not separator:
            return cls("file://", scheme)
        authority = re.split("[/?#]", rest, maxsplit=1)[0]
        return cls(f"{scheme.lower()}://{authority.rpartition('@')[2]}", rest.removeprefix(authority) or "/")

    @property
    def uri(self) -> str:
        """The whole address."""
        return self.namespace + self.name


@dataclass(frozen=True)
class Transfer:
    """A text that was written: from what to where."""

    origin: Origin
    target: Location
    bytes: int


def report(hook: ComplianceHook, transfers: Iterable[Transfer]) -> None:
    """Tell Airflow's collector of the lineage of hooks."""
    from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

    collector = get_hook_lineage_collector()
    for transfer in transfers:
        try:
            collector.add_input_asset(context=hook, uri=transfer.origin.uri)
            collector.add_output_asset(context=hook, uri=transfer.target.address)
        except Exception as error:  # an address that Airflow refuses must not fail the task
            log.debug("No lineage of '%s': %s", transfer.target, error)


def openlineage(transfers: Iterable[Transfer]) -> Any:
    """Return what OpenLineage takes of an operator; only called where its provider is installed."""
    from airflow.providers.common.compat.openlineage.facet import (
        InputDataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )
    from airflow.providers.openlineage.extractors import OperatorLineage

    many = list(transfers)
    return OperatorLineage(
        inputs=[InputDataset(each.namespace, each.name) for each in dict.fromkeys(t.origin for t in many)],
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


def _encoded(source: str) -> str:
    """Percent-encode what is not UTF-8: neither Airflow nor OpenLineage could write it down."""
    return re.sub("[\ud800-\udfff]+", lambda odd: quote(to_bytes(odd[0])), source)


def _dataset(location: Location) -> Dataset:
    if location.protocol == "file":
        return "file", location.path
    scheme = _SCHEMES.get(location.protocol, location.protocol)
    return f"{scheme}://{location.container}", location.key
