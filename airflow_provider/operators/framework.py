"""Operators that list frameworks and criteria."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import ComplianceNotFoundError
from airflow_provider.operators.base import ComplianceBaseOperator, entry_point
from airflow_provider.runtime.params import as_id

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider.client.models import Framework

MAX_NAMES_CHARS = 500


class ComplianceListFrameworksOperator(ComplianceBaseOperator):
    """List all compliance frameworks; returns them as dicts, each with its criteria."""

    ui_color = "#f1ecda"

    @entry_point
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """List them."""
        frameworks = self.call(self.hook.list_frameworks)
        criteria = sum(len(framework.criteria) for framework in frameworks)
        self.log.info("Listed %s frameworks with %s criteria.", len(frameworks), criteria)
        return [framework.model_dump(mode="json", exclude_none=True) for framework in frameworks]


class ComplianceListCriteriaOperator(ComplianceBaseOperator):
    """List the criteria of a compliance framework; returns them as dicts.

    :param framework_id: the id of the framework, as the list of frameworks has it
    """

    template_fields: Sequence[str] = ("conn_id", "framework_id")
    named_after: ClassVar[str] = "framework_id"
    ui_color = "#f1ecda"

    def __init__(self, *, framework_id: str | int | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.framework_id: Any = framework_id

    @entry_point
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """List them."""
        framework_id = as_id(self.framework_id, "framework_id")
        known: list[Framework] = []

        def is_unknown() -> bool:
            known[:] = self.call(self.hook.list_frameworks)
            return framework_id not in (str(framework.id) for framework in known)

        try:
            criteria = self.call(lambda: self.hook.list_criteria(framework_id), is_unknown)
        except ComplianceNotFoundError as error:
            if error.transient:
                raise
            names = ", ".join(f"{one.id} ({one.code_name or one.name})" for one in known) or "none"
            raise ComplianceNotFoundError(
                f"The service does not know framework '{framework_id}'. It lists: {names[:MAX_NAMES_CHARS]}",
                status=error.status,
                body=error.body,
            ) from None
        self.log.info("Listed %s criteria of framework %s.", len(criteria), framework_id)
        return [criterion.model_dump(mode="json", exclude_none=True) for criterion in criteria]
