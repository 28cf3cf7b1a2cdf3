"""What operators, sensors and transfers share: the connection, the hook, and waiting for jobs."""

from __future__ import annotations

import ast
import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider.client.http.masking import one_line
from airflow_provider.compat import apply_map_index_template
from airflow_provider.hooks.compliance import ComplianceHook, check_hook_class
from airflow_provider.hooks.interop import fail_without_retry, mask_secrets
from airflow_provider.storage.names import printable
from airflow_provider.waiting.results import FINAL, Deadline, WaitResult
from airflow_provider.waiting.worker import wait_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.triggers.base import ComplianceWaitTrigger
    from airflow_provider.waiting.kinds import JobKind
    from airflow_provider.waiting.rules import Accepts

MAX_TITLE_CHARS = 100
Entry = TypeVar("Entry", bound=Callable[..., Any])


def entry_point(method: Entry) -> Entry:
    """Decorate what Airflow calls with a context: name the mapped task, and fail without retry where due.

    An error that is not transient becomes an `AirflowFailException`.
    """

    @fail_without_retry
    @functools.wraps(method)
    def wrapped(self: BaseOperator, context: Context, *args: Any, **kwargs: Any) -> Any:
        apply_map_index_template(self, context)
        return method(self, context, *args, **kwargs)

    return cast("Entry", wrapped)


class ComplianceBaseOperator(BaseOperator):
    """Base of all operators, sensors and transfers of this provider.

    Set `hook_class` in a subclass to use a hook of your own everywhere, in the triggerer too.

    :param conn_id: the Airflow connection
    """

    hook_class: ClassVar[type[ComplianceHook]] = ComplianceHook
    template_fields: Sequence[str] = ("conn_id",)

    def __init__(self, *, conn_id: str = ComplianceHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    @property
    def topic(self) -> object:
        """What the task is about, for the name of a mapped task."""
        return self.conn_id

    @property
    def title(self) -> str:
        """The name of a mapped task: short, because Airflow stores 250 characters, and without secrets."""
        text = mask_secrets(one_line(printable(str(self.topic))))
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            ast.literal_eval(text)
            text = f"#{text}"  # else native templates would make a number of it, which is no name
        return text if len(text) <= MAX_TITLE_CHARS else f"{text[: MAX_TITLE_CHARS - 1]}…"

    @functools.cached_property
    def hook(self) -> ComplianceHook:
        """The hook, created once; use it in `execute` only, after templates are rendered."""
        return self.hook_class(self.conn_id)

    def renew_hook(self) -> ComplianceHook:
        """Read the connection again: after a long wait it may have changed."""
        self.__dict__.pop("hook", None)
        return self.hook


class WaitMixin:
    """Waits for jobs, in the triggerer or in the worker, with one end for both: `_finish`."""

    trigger_class: ClassVar[type[ComplianceWaitTrigger]]

    if TYPE_CHECKING:  # of the operator
        conn_id: str
        deferrable: bool
        timeout: float
        execution_timeout: timedelta | None
        hook: ComplianceHook
        hook_class: ClassVar[type[ComplianceHook]]
        log: Any
        defer: Any

    @property
    def kind(self) -> JobKind:
        """What is waited for: jobs or assessments."""
        return self.trigger_class.kind

    @property
    @abstractmethod
    def longest_poll_interval(self) -> float:
        """Seconds between two polls at most."""

    @abstractmethod
    def _finish(self, context: Context, result: WaitResult, deadline: Deadline, **resumed: Any) -> Any:
        """Turn the result of a wait into the result of the task, or into an error.

        :param resumed: what was passed to `_wait_and_finish`
        """

    def _wait_and_finish(
        self,
        context: Context,
        ids: list[str],
        *,
        is_final: bool = False,
        accepts: Accepts | None = None,
        trigger_options: dict[str, Any] | None = None,
        **resumed: Any,
    ) -> Any:
        """Defer, or wait here; what is final is not worth a trigger.

        :param trigger_options: parameters of the trigger besides those that all have
        :param resumed: keyword arguments for `_finish`, kept by Airflow while the task is deferred
        """
        deadline = Deadline.for_task(context, self.timeout, self.execution_timeout)
        if self.deferrable and not is_final:
            noun = self.kind.noun
            self.log.info("Waiting for %s in the triggerer.",
                          f"{noun} {ids[0]}" if len(ids) == 1 else f"{len(ids)} {noun}s")  # fmt: skip
            self.defer(
                trigger=self._make_trigger(ids, deadline, **(trigger_options or {})),
                method_name="execute_complete",
                kwargs={"limit": deadline.name, **resumed},
                timeout=deadline.trigger_timeout,
            )
        result = wait_in_worker(
            self.kind, self.hook, ids, self.longest_poll_interval, deadline.at, self.log, accepts
        )
        return self._finish(context, result, deadline, **resumed)

    def _make_trigger(self, ids: list[str], deadline: Deadline, **options: Any) -> ComplianceWaitTrigger:
        make: Callable[..., ComplianceWaitTrigger] = self.trigger_class
        return make(
            self.conn_id,
            ids,
            self.longest_poll_interval,
            deadline.at,
            hook_class=check_hook_class(self.hook_class),
            **options,
        )

    def _resume(self, context: Context, event: Any, limit: str, **resumed: Any) -> Any:
        """Finish after the trigger's event; for `execute_complete`."""
        return self._finish(context, WaitResult.from_event(event), Deadline(limit), **resumed)


def is_final(records: dict[str, Any]) -> bool:
    """Tell whether all records show a final state."""
    return all(record["status"] in FINAL for record in records.values())
