"""A stand-in for the document-compliance service, for demos and for tests of DAGs.

`with Emulator(jobs="polls:2") as service:` runs one in a thread, `python -m airflow_provider.emulator`
runs one as a process, the pytest fixture `compliance_service` runs one per test. Loopback only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider.emulator.server import Emulator

__all__ = ["Emulator"]

EXTRA = "airflow-provider-compliance[emulator]"


def __getattr__(name: str) -> Any:
    # Lazy: every pytest run imports the plugin of this package.
    if name != "Emulator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from airflow_provider.emulator.server import Emulator
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("airflow_provider"):
            raise
        raise ModuleNotFoundError(
            f"The emulator needs {error.name}, which is not installed: "
            f"pip install --constraint {_constraints_url()} '{EXTRA}'",
            name=error.name,
        ) from error
    return Emulator


def _constraints_url() -> str:
    """Return where Airflow publishes the constraints for this Airflow and this Python."""
    from importlib.metadata import version

    airflow, python = version("apache-airflow"), sys.version_info
    return (
        f"https://raw.githubusercontent.com/apache/airflow/constraints-{airflow}/"
        f"constraints-{python.major}.{python.minor}.txt"
    )
