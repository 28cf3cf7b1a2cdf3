"""Run the command line: `python -m airflow_provider verify URI`."""

from __future__ import annotations

import sys

from airflow_provider.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
