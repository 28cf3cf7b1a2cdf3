"""`frameworks`: the frameworks of the service, as bulk assessment identifies them."""

from __future__ import annotations

import argparse
import json

from airflow_provider.cli.commands import FOUND, GOOD, Command, option, print_error, print_line, print_table


def run(options: argparse.Namespace) -> int:
    """List the frameworks."""
    from airflow_provider.cli.access import asking_airflow

    with asking_airflow():
        from airflow_provider.assess.cells import select_frameworks
        from airflow_provider.hooks.compliance import ComplianceHook

        listed = ComplianceHook(options.conn_id).get_conn().list_frameworks()
        # One by one: what is ambiguous or listed twice is shown as it is.
        frameworks = [(each, select_frameworks([each], ())[0]) for each in listed]
    if options.json:
        for record, framework in frameworks:
            criteria = [{"code_name": each.code_name, "name": each.name} for each in record.criteria]
            line = {
                "id": framework.id,
                "code_name": record.code_name,
                "name": record.name,
                "criteria": criteria if options.criteria else len(criteria),
                "fingerprint": framework.fingerprint,
            }
            print_line(json.dumps(line))
    elif not options.criteria:
        rows = [
            (each.id, record.code_name or "", len(record.criteria), each.fingerprint, record.name or "")
            for record, each in frameworks
        ]
        print_table(("ID", "CODE NAME", "CRITERIA", "FINGERPRINT", "NAME"), rows)
    else:
        for record, framework in frameworks:
            print_line(f"{framework.code_name} (id {framework.id}), fingerprint {framework.fingerprint}")
            for each in record.criteria:
                print_line(f"    {each.code_name or ''}: {each.name or ''}")
    if not frameworks:
        print_error("The service lists no frameworks: check with `doctor` that this is the right service.")
    return GOOD if frameworks else FOUND


COMMAND = Command(
    name="frameworks",
    help="List the frameworks of the service, with their fingerprints",
    description="List id, code name, number of criteria, fingerprint and name of each framework. The "
    "fingerprint is the one in assessments.jsonl: when it changes, documents are assessed again. Exit code "
    "0: listed; 1: there are none; 2: wrong usage, or the service did not answer.",
    options=(
        option("conn_id", nargs="?", default="compliance_default", help="default: compliance_default"),
        option("--criteria", action="store_true", help="list the criteria, too"),
        option("--json", action="store_true", help="print one JSON object per framework"),
    ),
    run=run,
)
