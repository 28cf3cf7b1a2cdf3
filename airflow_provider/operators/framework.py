"""Operators that list frameworks and criteria."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider.compat import apply_map_index_template
from airflow_provider.exceptions import ComplianceError, ComplianceNotFoundError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.errors import as_non_retryable

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

KNOWN_SHOWN = 20


class ComplianceListFrameworksOperator(BaseOperator):
    """List all compliance frameworks; returns them as dicts, each with its criteria.

    :param conn_id: the Airflow connection
    :param with_criteria: return also the criteria; without them the result is small
    """

    template_fields: Sequence[str] = ("conn_id",)
    ui_color = "#f1ecda"

    def __init__(
        self,
        *,
        conn_id: str = ComplianceHook.default_conn_name,
        with_criteria: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or "{{ task.conn_id }}"
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.with_criteria = with_criteria

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """List them."""
        apply_map_index_template(self, context)
        frameworks = ComplianceHook(self.conn_id).list_frameworks()
        criteria = sum(len(each.criteria) for each in frameworks)
        self.log.info("The service lists %s frameworks with %s criteria.", len(frameworks), criteria)
        left_out = None if self.with_criteria else {"criteria"}
        return [each.model_dump(mode="json", exclude_none=True, exclude=left_out) for each in frameworks]


class ComplianceListCriteriaOperator(BaseOperator):
    """List the criteria of a compliance framework; returns them as dicts.

    :param framework_id: the id of the framework, as the list of frameworks has it
    :param conn_id: the Airflow connection
    """

    template_fields: Sequence[str] = ("conn_id", "framework_id")
    ui_color = "#f1ecda"

    def __init__(
        self,
        *,
        framework_id: str | int | XComArg,
        conn_id: str = ComplianceHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or "{{ task.framework_id }}"
        super().__init__(**kwargs)
        self.framework_id: Any = framework_id
        self.conn_id = conn_id

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """List them."""
        apply_map_index_template(self, context)
        hook = ComplianceHook(self.conn_id)
        try:
            criteria = hook.list_criteria(self.framework_id)
        except ComplianceNotFoundError as error:
            raise as_non_retryable(_unknown(self.framework_id, hook, error)) from None
        self.log.info("Framework %s has %s criteria.", self.framework_id, len(criteria))
        return [each.model_dump(mode="json", exclude_none=True) for each in criteria]


def _unknown(
    framework_id: Any, hook: ComplianceHook, error: ComplianceNotFoundError
) -> ComplianceNotFoundError:
    """Say which frameworks there are, if the service tells."""
    try:
        known = [f"{each.id} ({each.code_name or each.name})" for each in hook.list_frameworks()]
    except ComplianceError:
        return error
    more = f" and {len(known) - KNOWN_SHOWN} more" if len(known) > KNOWN_SHOWN else ""
    return ComplianceNotFoundError(
        f"The service knows no framework '{framework_id}'. Its ids are: "
        f"{', '.join(known[:KNOWN_SHOWN]) or 'none at all'}{more}.",
        status=error.status,
        body=error.body,
    )
