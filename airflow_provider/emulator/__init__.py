"""A stand-in for the document-compliance service, for demos and for tests of DAGs.

`with Emulator(jobs="polls:2") as service:` runs one in a thread, `python -m airflow_provider.emulator`
runs one as a process, the pytest fixture `compliance_service` runs one per test. Loopback only.
"""

from __future__ import annotations

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
            f"The emulator needs {error.name}, which is not installed: pip install '{EXTRA}', with the "
            "constraints of your Airflow.",
            name=error.name,
        ) from error
    return Emulator
