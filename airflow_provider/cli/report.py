"""`report`: make the report of a night again, from its manifests."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from airflow_provider.cli.commands import GOOD, Command, option, print_line, print_note


def run(options: argparse.Namespace) -> int:
    """Read the manifests, and write the report."""
    from airflow_provider.cli.access import open_location
    from airflow_provider.cli.rebuild import build_report, find_manifests
    from airflow_provider.exceptions import ComplianceInputError
    from airflow_provider.storage.atomic import create_once, put_sync
    from airflow_provider.storage.layout import EVIDENCE_FOLDER

    uris = [*dict.fromkeys(map(_real_uri, options.manifests)), _real_uri(options.output)]
    *opened, (output, note) = [open_location(uri, use_connection=options.use_connection) for uri in uris]
    for each in dict.fromkeys(note for _, note in (*opened, (output, note)) if note):
        print_note(each)
    if output.is_prefix:
        raise ComplianceInputError(f"'{output}' is a folder: give --output the name of a file.")
    if output.path.endswith(".jsonl"):
        raise ComplianceInputError(f"'{output}' has the name of a manifest: choose another --output.")
    if EVIDENCE_FOLDER in output.path.split("/"):
        raise ComplianceInputError(
            f"'{output}' is evidence, which is never written again: choose another place."
        )
    report = build_report(find_manifests([location for location, _ in opened]))
    content = report.html.encode("utf-8", "replace")
    if options.force:
        put_sync(output, content)
    elif not create_once(output, content):
        raise ComplianceInputError(f"'{output}' exists: choose another --output, or add --force.")
    if options.json:
        print_line(json.dumps({"report": output.uri, "kind": report.kind, **report.counts}))
    else:
        counts = ", ".join(f"{name} {number:,}" for name, number in report.counts.items())
        print_line(f"Wrote {output}: {counts}.")
    return GOOD


def _real_uri(path: str) -> str:
    """Return where a local path leads to, however it is spelled; other URIs as they are."""
    from airflow_provider.cli.access import as_uri

    uri = as_uri(path)
    scheme, _, local = uri.partition("://")
    if scheme not in ("file", "local"):
        return uri
    return f"file://{Path(local).resolve()}{'/' if local.endswith('/') else ''}"


COMMAND = Command(
    name="report",
    help="Make the report of a night again, also one of all shards",
    description="Make the HTML report again from manifests of ingestion, or from assessments.jsonl with the "
    "findings.jsonl beside it, of one or all shards of a night. Exit code 0: the report is written, whatever "
    "it says; 2: wrong usage, a manifest is missing or damaged, or the store has failed.",
    options=(
        option(
            "manifests",
            nargs="+",
            metavar="MANIFEST",
            help="a URI or a local path; a folder means all manifests below it",
        ),
        option(
            "--output",
            default="report.html",
            metavar="FILE",
            help="a URI or a local path; default: report.html",
        ),
        option("--force", action="store_true", help="replace an existing file"),
        option(
            "--use-connection",
            action="store_true",
            help="use the Airflow connection of a URI such as s3://conn_id@bucket/texts as tasks do",
        ),
        option("--json", action="store_true", help="print one JSON object"),
    ),
    run=run,
)
