"""Importing this fails where Airflow has no human in the loop: before 3.1."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import AirflowException

try:
    from airflow.providers.standard.operators.hitl import HITLOperator as HITLOperator
except AirflowException as error:  # Airflow 3.0, whose provider has the module
    raise ModuleNotFoundError(str(error)) from None
