"""The trigger that waits for assessments."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

from airflow_provider.exceptions import ComplianceConfigError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.triggers.base import ComplianceWaitTrigger
from airflow_provider.waiting.kinds import ASSESSMENTS, JobKind


@dataclass(eq=False, repr=False)
class ComplianceAssessmentTrigger(ComplianceWaitTrigger):
    """Waits until all assessments have come to their end; all triggers of a connection share one poller.

    :param conn_id: the Airflow connection
    :param assessment_ids: the assessments
    :param poll_interval: longest time in seconds between two looks; young ones are looked at sooner
    :param deadline: when to give up, in seconds since the epoch
    :param cancel_on_kill: cancel the assessments that are in flight when a user ends the task
    :param hook: module and name of the hook's class, where a service needs one of its own
    """

    kind: ClassVar[JobKind] = ASSESSMENTS

    conn_id: str
    assessment_ids: list[str]
    poll_interval: float
    deadline: float
    cancel_on_kill: bool = False
    hook: str = ""

    @property
    def ids(self) -> list[str]:
        """The assessments."""
        return self.assessment_ids

    def make_hook(self) -> ComplianceHook:
        """Return the hook."""
        if not self.hook:
            return super().make_hook()
        module, _, name = self.hook.rpartition(".")
        try:
            hook: ComplianceHook = getattr(import_module(module), name)(self.conn_id)
        except (ImportError, AttributeError, ValueError) as error:
            raise ComplianceConfigError(
                f"The triggerer can't import the hook '{self.hook}': {error}. Put it into a package or the "
                "plugins folder, not into a DAG file."
            ) from None
        return hook


def path_of(hook_class: type[ComplianceHook]) -> str:
    """Return how a trigger names a hook's class; the usual one has no need of a name."""
    is_usual = hook_class is ComplianceHook
    return "" if is_usual else f"{hook_class.__module__}.{hook_class.__qualname__}"
