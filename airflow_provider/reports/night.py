"""The report of a whole night: all shards of ingestion and assessment, compared with earlier nights."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from airflow_provider.reports.outcomes import OutcomeStats, limit_source, summarize
from airflow_provider.reports.page import format_night, plural, render, worst
from airflow_provider.reports.trend import TrendPoint, plot_trend
from airflow_provider.reports.verdicts import VerdictCounts
from airflow_provider.text import sanitize

MAX_MISSING = 50
MAX_VANISHED = 50
OPEN_REPEATED = 10
MAX_FILES = 100  # of each kind
MAX_TREND_NIGHTS = 30  # this one included
MAX_URI_CHARS = 500
KINDS = {
    "report": "Reports of tasks",
    "ingest": "Manifests of ingestion",
    "assess": "Assessments",
    "findings": "Findings",
    "review": "Decisions of experts",
}

_COUNT = re.compile(r"(?<=\d) (?=[a-z])")  # where a line must not end


@dataclass
class NightReport:
    """What the page shows.

    :param night: its logical date
    :param documents: rows of all ingest manifests
    :param verdicts: rows of all assessments and findings
    :param totals: of this night, as in its record
    :param trend: dates and totals of earlier nights, the latest first
    :param missing: tasks that have left nothing
    :param failed_tasks: tasks that have failed, but left a manifest
    :param vanished: documents of an earlier night that are not among tonight's: the first of them
    :param compared_night: the night that had them: the latest one with documents
    :param gone_frameworks: that had verdicts in the previous night, but have none tonight
    :param warnings: what there is less of than expected, by the tasks themselves
    :param decisions: how many experts have made
    :param files: kind and URI of each file that the night consists of
    :param root: where the chain of nights is
    :param previous: SHA-256 of the record that the record of this night is chained to
    :param folder: where the page will be, for links to files
    """

    dag_id: str
    run_id: str
    night: str
    revision: int
    documents: OutcomeStats = field(default_factory=OutcomeStats)
    verdicts: VerdictCounts = field(default_factory=VerdictCounts)
    totals: Mapping[str, object] = field(default_factory=dict)
    trend: Sequence[tuple[object, object]] = ()
    missing: Sequence[str] = ()
    failed_tasks: Sequence[str] = ()
    vanished: Sequence[str] = ()
    vanished_total: int = 0
    compared_night: str = ""
    gone_frameworks: Sequence[str] = ()
    warnings: Sequence[str] = ()
    decisions: int = 0
    files: Sequence[tuple[str, str]] = ()
    root: str = ""
    previous: str = ""
    folder: str = ""

    def render(self) -> str:
        """Return the HTML page."""
        tone, status, headline = self._summarize()
        tonight = TrendPoint.parse(self.night, self.totals)
        earlier = [TrendPoint.parse(*night) for night in self.trend[: MAX_TREND_NIGHTS - 1]]
        return render(
            "night.html",
            report=self,
            documents=self.documents,
            verdicts=self.verdicts,
            is_compared=self._is_compared,
            night=format_night(self.night),
            tone=tone,
            status=status,
            headline=headline,
            last=earlier[0] if earlier else None,
            more_documents=self.documents.total - earlier[0].numbers["documents"] if earlier else 0,
            trend=plot_trend([tonight, *earlier]),
            open_repeated=OPEN_REPEATED,
            missing=self.missing[:MAX_MISSING],
            vanished=[limit_source(source, 300) for source in self.vanished[:MAX_VANISHED]],
            failed_tasks=self.failed_tasks[:MAX_MISSING],
            files=self._files(),
            command=f"python -m airflow_provider verify {_quote_root(self.root)}",
        )

    @property
    def _is_compared(self) -> bool:
        """Whether any verdict had one in the previous night."""
        return self.verdicts.total > self.verdicts.new

    def _summarize(self) -> tuple[str, str, str]:
        """Return the tone, the status and the headline: of several problems, the worst."""
        states = [("idle", "Nothing to do")]
        sentences = []
        if self.missing:
            states.append(("bad", "Incomplete"))
            sentences.append(f"{plural(len(self.missing), 'task')} of this night left no manifest.")
        if self.vanished_total:
            some = ("warn", f"{self.vanished_total:,} vanished")
            states.append(some if self.documents.total else ("bad", "No documents"))
            day = sanitize(self.compared_night)[:10]
            sentences.append(f"{plural(self.vanished_total, 'document')} of the night of {day} vanished.")
        if self.gone_frameworks:
            gone = plural(len(self.gone_frameworks), "framework")
            states.append(("warn", f"{gone} gone"))
            sentences.append(f"{gone} of the previous night without a verdict.")
        if self.warnings:
            states.append(("warn", "Less than expected"))
        if self.failed_tasks:
            states.append(("warn", f"{plural(len(self.failed_tasks), 'task')} failed"))
        states += self.verdicts.states()
        sentences += self.verdicts.sentences(is_compared=self._is_compared)
        if self.documents.total:
            tone, status, sentence = summarize(self.documents)
            states.append((tone, status))
            sentences.append(sentence)
        if self.documents.repeated.given_up:
            states.append(("warn", f"{self.documents.repeated.given_up:,} given up"))
        tone, status = worst(states)
        if tone == "good" and self.documents.total and self.verdicts.cells:
            status = "Complete"
        headline = " ".join(sentences) or "There was nothing to do in this night."
        return tone, status, _COUNT.sub("\u00a0", headline)

    def _files(self) -> dict[str, tuple[int, list[tuple[str, str]]]]:
        """Return how many files there are of each kind, and the first with links."""
        by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for kind, uri in self.files:
            by_kind.setdefault(kind, []).append(uri)
        return {
            KINDS.get(kind, sanitize(kind, 40)): (
                len(uris),
                [(uri, relative_link(uri, self.folder)) for uri in uris[:MAX_FILES]],
            )
            for kind, uris in by_kind.items()
            if uris
        }


def relative_link(uri: str, folder: str) -> str:
    """Return the link from a page in a folder to a file of the same store; else an empty text.

    It works wherever the store is served, where the URI itself would not.
    """
    scheme, separator, path = uri.partition("://")
    base_scheme, _, base = folder.partition("://")
    bucket, base_bucket = path.partition("/")[0], base.partition("/")[0]
    is_near = separator and folder and scheme == base_scheme and bucket == base_bucket
    if not is_near or len(uri) > MAX_URI_CHARS or "://" in path:
        return ""
    return quote(posixpath.relpath(f"/{path}", f"/{base}"), errors="replace")


def _quote_root(root: str) -> str:
    """Return the root for a command line, without the connection of Airflow in it."""
    scheme, separator, rest = root.partition("://")
    if separator:
        authority, slash, path = rest.partition("/")
        root = f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"
    return shlex.quote(sanitize(root)) if root else "ROOT"
