"""`pack`: all that the nights say about some documents, for an auditor, in one file."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from zipfile import ZipFile

from airflow_provider.cli.commands import FAILED, print_error, print_note
from airflow_provider.cli.verify import open_stores, print_records
from airflow_provider.nights.evidence.pack import Bag, Packer
from airflow_provider.nights.evidence.verifier import report
from airflow_provider.redaction.text import plural


def run(options: argparse.Namespace) -> int:
    """Verify the documents, print a line per record, and write the pack."""
    output = Path(options.output)
    is_unclear = bool(options.source) == bool(options.sample) or bool(options.sample) != bool(options.head)
    if is_unclear or output.exists() or not output.parent.is_dir():
        problem = "Give either --sample or --source"
        if options.sample and not (options.source or options.head):
            problem = "Give --head: the hash of the last record, told before the seed was chosen"
        if output.exists():
            problem = f"'{output}' exists: choose another name for the pack"
        elif not output.parent.is_dir():
            problem = f"'{output.parent}' is not a folder: create it, or write the pack elsewhere"
        print_error(f"{problem}.")
        return FAILED
    stores = open_stores(options)
    if not stores:
        return FAILED
    first, last = ("" if day is None else day.isoformat() for day in (options.first, options.last))
    with (
        tempfile.TemporaryDirectory(dir=output.parent, prefix=".pack-") as folder,
        ZipFile(Path(folder, "pack.zip"), "w") as file,
    ):
        bag, sources = Bag(file), dict.fromkeys(options.source)
        packer = Packer(
            stores[0], stores[1:], bag, sources=sources, sample=options.sample, seed=options.seed,
            head=options.head or "", period=(first, last),
        )  # fmt: skip
        code = print_records(packer) if options.json else report(packer)
        unknown = next((source for source in packer.documents if source not in packer.found), None)
        if packer.is_stopped or unknown is not None or not packer.documents:
            problem = "The store has failed: try again"
            if options.head and not packer.draw.number:
                problem = f"No record has the SHA-256 {options.head}"
            elif not packer.is_stopped:
                problem = (
                    f"No night of this period has {'a document' if unknown is None else repr(unknown)}: "
                )
                problem += "give other dates" if unknown is None else "give the source as tables have it"
            print_error(f"No pack is written. {problem}.")
            return FAILED
        packer.finish()
        file.close()
        Path(folder, "pack.zip").replace(output)
    print_note(f"{plural(len(packer.documents))} in '{output}'.")
    return code
