"""Shared by operators, sensors and transfers: the connection, the hook, links, and waiting for jobs."""

from __future__ import annotations

import ast
import functools
import inspect
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from airflow.providers.common.compat.sdk import AirflowFailException, Asset, BaseOperator, conf

from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceSupersededError
from airflow_provider.hooks.compliance import ComplianceHook, check_hook_class
from airflow_provider.redaction.text import sanitize
from airflow_provider.runtime.compat import apply_map_index_template
from airflow_provider.runtime.event_loop import EventLoop
from airflow_provider.runtime.non_retryable import as_non_retryable
from airflow_provider.runtime.params import IS_EXECUTING, as_id, as_seconds, read_number
from airflow_provider.waiting.kinds import JOBS, JobKind
from airflow_provider.waiting.refusals import outlast_refusals_sync
from airflow_provider.waiting.results import WaitResult
from airflow_provider.waiting.rules import Accepts, accept_final
from airflow_provider.waiting.waits import Deadline, delete_in_worker, wait_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.storage.lineage import Lineage
    from airflow_provider.triggers.base import ComplianceWaitTrigger

log = logging.getLogger(__name__)

MAX_TITLE_CHARS = 100
SUBMITTED_KEY = "compliance_submitted"  # XCom of a submit: id and account of its job; of a bulk task no id
ROOT_KEY = "compliance_root"  # XCom of a closing task: where its chain is
Entry = TypeVar("Entry", bound=Callable[..., Any])
T = TypeVar("T")
PARAMETER = re.compile(r"^:param (\w+):.*(?:\n +.*)*", re.MULTILINE)  # for a docstring


def entry_point(method: Entry) -> Entry:
    """Decorate what Airflow calls with a context: name the mapped task, and make errors readable.

    An error that is not transient becomes an `AirflowFailException`, whose traceback ends here: its message
    says what to do.
    """

    @functools.wraps(method)
    def wrapped(self: BaseOperator, context: Context, *args: Any, **kwargs: Any) -> Any:
        apply_map_index_template(self, context)
        vars(self)[IS_EXECUTING] = True
        try:
            return method(self, context, *args, **kwargs)
        except ComplianceError as error:
            advice = "A retry would not help. Correct this, then clear the task."
            is_final = not error.transient or isinstance(error, AirflowFailException)
            if not is_final and is_last_attempt(context.get("ti")):
                advice = "This was the last attempt: clear the task to try again."
            elif not is_final:
                advice = "Airflow tries again."
            elif isinstance(error, ComplianceSupersededError):
                advice = "Nothing is to be done."
            # On one line, before Airflow logs it with its traceback.
            self.log.log(logging.ERROR, "%s %s", error, advice)
            if not is_final:
                raise
            final = error if isinstance(error, AirflowFailException) else as_non_retryable(error)
        raise final.with_traceback(None) from None

    return cast("Entry", wrapped)


def is_last_attempt(ti: Any) -> bool:
    """Return whether Airflow has no retry left for a task instance."""
    return bool(getattr(ti, "try_number", 0) > getattr(ti, "max_tries", 0))


def fails_for_good(error: BaseException, ti: Any) -> bool:
    """Return whether a task that ends with this error is not retried."""
    is_final = isinstance(error, ComplianceError) and not error.transient
    return is_final or isinstance(error, AirflowFailException) or is_last_attempt(ti)


class ComplianceBaseOperator(BaseOperator):
    """Base of all operators, sensors and transfers of this provider.

    Set `hook_class` in a subclass to use a hook of your own everywhere, in the triggerer too.

    :param conn_id: the Airflow connection
    """

    hook_class: ClassVar[type[ComplianceHook]] = ComplianceHook
    template_fields: Sequence[str] = ("conn_id",)
    named_after: ClassVar[str] = "conn_id"  # the parameter that a mapped task is named after

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Add the parameters that base classes describe to the documentation of a class."""
        super().__init_subclass__(**kwargs)
        text = inspect.cleandoc(vars(cls).get("__doc__") or "")
        for base in cls.__mro__[1:] if text else ():
            if base.__module__.startswith("airflow_provider."):
                for found in PARAMETER.finditer(inspect.cleandoc(base.__doc__ or "")):
                    if f":param {found[1]}:" not in text:
                        text += ("\n" if ":param " in text else "\n\n") + found[0]
        cls.__doc__ = text or None

    def __init__(self, *, conn_id: str = ComplianceHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    @property
    def topic(self) -> object:
        """The subject of the task, for the name of a mapped task."""
        return getattr(self, self.named_after)

    @property
    def title(self) -> str:
        """The name of a mapped task: short, because Airflow stores 250 characters, and without secrets."""
        text = sanitize(self.topic, 2 * MAX_TITLE_CHARS)
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            ast.literal_eval(text)
            text = f"#{text}"  # else native templates would make a number of it, which is not a name
        return text if len(text) <= MAX_TITLE_CHARS else f"{text[: MAX_TITLE_CHARS - 1]}…"

    @functools.cached_property
    def hook(self) -> ComplianceHook:
        """The hook, created once; use it in `execute` only, after templates are rendered."""
        return self.hook_class(self.conn_id)

    def call(self, function: Callable[[], T], confirm: Callable[[], bool] | None = None) -> T:
        """Call the service and return its result; repeat a refused call, as polls are repeated.

        A gateway may answer 403, 404 or 405 for a while. Call this only where the service surely did not
        accept a request that it refuses.

        :param confirm: see `outlast_refusals`
        """
        return outlast_refusals_sync(function, self.hook.get_conn(), self.log, confirm)

    def _check_submitted(self, context: Context, ids: Iterable[str]) -> None:
        """Refuse jobs that upstream tasks submitted as another account."""
        if wanted := set(ids):
            submitted = self._submitted(context)
            self._check_accounts(
                context, ((job["id"], job["account"]) for job in submitted if job["id"] in wanted)
            )

    def _submitted(self, context: Context) -> Iterator[Mapping[str, str]]:
        """Iterate over the jobs that upstream tasks submitted, with their accounts."""
        ti: Any = context["ti"]
        same = {"map_indexes": [ti.map_index, -1]} if ti.map_index >= 0 else {}
        for task_id in sorted(self.get_flat_relative_ids(upstream=True) if self.has_dag() else ()):
            before = self.dag.get_task(task_id)
            if hasattr(getattr(before, "operator_class", before), "kind"):  # else it submits nothing
                found = ti.xcom_pull(task_ids=task_id, key=SUBMITTED_KEY, **same)
                yield from filter(None, [found] if isinstance(found, Mapping) else found or ())

    def _check_accounts(self, context: Context, found: Iterable[tuple[str, str | None]]) -> None:
        """Refuse jobs of another account: this account may have another job with the same id.

        :param found: a name of each job, and its account, if that is known
        """
        own = self.hook.account_digest
        foreign = [(what, account) for what, account in found if account not in (None, "", own)]
        if foreign:
            (what, account), more = foreign[0], f", and {len(foreign) - 1:,} more" if foreign[1:] else ""
            names = {job["account"]: job["conn_id"] for job in self._submitted(context)}
            name = f", submitted with '{names[account]}'" if account in names else ""
            raise ComplianceInputError(
                f"The connection '{self.conn_id}' has another account ({own}) than these jobs ({account}): "
                f"{what}{name}{more}. Use one `conn_id` for both tasks; if the connection was changed, "
                "clear the task that submitted it."
            )


class CancelOperator(ComplianceBaseOperator):
    """Cancels and deletes a job or an assessment; one that does not exist any more is a success."""

    kind: ClassVar[JobKind]
    ui_color = "#f5e3dc"

    @entry_point
    def execute(self, context: Context) -> None:
        """Cancel it."""
        identifier = as_id(self.topic, self.named_after.replace("_", " "))
        self._check_submitted(context, [identifier])
        is_cancelled = delete_in_worker(self.kind, self.hook, identifier, self.log)
        what = f"{self.kind.noun} {identifier}"
        self.log.info("Cancelled %s." if is_cancelled else "Already gone: %s.", what)


class WaitingOperator(ComplianceBaseOperator, ABC):
    """Waits for jobs, in the triggerer or in the worker, with one end for both: `_finish`.

    :param deferrable: wait in the triggerer, not in a worker; by default `[operators] default_deferrable`
        of Airflow's configuration
    """

    kind: ClassVar[JobKind]
    poll_interval: float
    timeout: float

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable

    @abstractmethod
    def _finish(self, context: Context, result: WaitResult, deadline: Deadline, **resumed: Any) -> Any:
        """Turn the result of a wait into the result of the task, or into an error.

        :param resumed: the arguments of `_wait_and_finish`
        """

    @entry_point
    def execute_complete(
        self, context: Context, event: Any = None, limit: str = "timeout", **resumed: Any
    ) -> Any:
        """Resume after the trigger's event."""
        return self._finish(context, WaitResult.from_event(event), Deadline(limit), **resumed)

    def _wait_and_finish(
        self,
        context: Context,
        ids: list[str],
        *,
        is_final: bool = False,
        accepts: Accepts = accept_final,
        trigger_options: dict[str, Any] | None = None,
        **resumed: Any,
    ) -> Any:
        """Defer, or wait here; jobs in a final state are not worth a trigger.

        :param trigger_options: additional parameters of the trigger
        :param resumed: keyword arguments for `_finish`, kept by Airflow while the task is deferred
        """
        deadline = Deadline.for_task(context, self.timeout, self.execution_timeout)
        if self.deferrable and not is_final:
            self.log.info("Waiting for %s in the triggerer.", self.kind.describe(ids))
            self.defer(
                trigger=self._make_trigger(ids, deadline, **(trigger_options or {})),
                method_name="execute_complete",
                kwargs={"limit": deadline.name, **resumed},
                timeout=deadline.trigger_timeout,
            )
        result = wait_in_worker(
            self.kind, self.hook, ids, self.poll_interval, deadline.seconds, self.log, accepts
        )
        return self._finish(context, result, deadline, **resumed)

    def _make_trigger(self, ids: list[str], deadline: Deadline, **options: Any) -> ComplianceWaitTrigger:
        # Not needed to parse a DAG, and Airflow's base class is slow to import.
        from airflow_provider.triggers.assessment import ComplianceAssessmentTrigger
        from airflow_provider.triggers.content import ComplianceContentTrigger

        make: Callable[..., ComplianceWaitTrigger]
        make = ComplianceContentTrigger if self.kind is JOBS else ComplianceAssessmentTrigger
        clock = self.hook.service_clock
        return make(
            self.conn_id,
            ids,
            self.poll_interval,
            deadline.at,
            hook_class=check_hook_class(self.hook_class),
            account=self.hook.account_digest,
            timeout=deadline.seconds,
            began_at=clock.now() if clock.is_known else 0.0,
            **options,
        )


class TimedWaitingOperator(WaitingOperator):
    """Adds the parameters of waiting that a sensor has from Airflow.

    :param poll_interval: longest time between two polls of a job, a timedelta or seconds; by default 30 s. A
        new job is polled more often
    :param timeout: how long to wait, a timedelta or seconds, by default one day; then the task fails
    """

    def __init__(
        self,
        *,
        poll_interval: timedelta | float = 30.0,
        timeout: timedelta | float = 24 * 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.poll_interval = as_seconds(poll_interval, "poll_interval")
        self.timeout = as_seconds(timeout, "timeout")


class StoringMixin:
    """Runs asynchronous work that a kill cancels, and reports written files to lineage and assets."""

    concurrency: int = read_number("concurrency")
    _lineage: Lineage | None = None

    if TYPE_CHECKING:  # attributes of the operator
        outlets: list[Any]
        destination: Any

    def on_kill(self) -> None:
        """Cancel the work, and leave nothing half-written behind."""
        self._loop.cancel()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Report to OpenLineage which files were read and written."""
        from airflow_provider.storage.lineage import Lineage

        return (self._lineage or Lineage()).openlineage()

    @functools.cached_property
    def _loop(self) -> EventLoop:
        """Where all work of the task runs; one that is cancelled starts no more."""
        return EventLoop(threads=2 * self.concurrency + 2)

    def _report_written(
        self, context: Context, written: Lineage, facts: Mapping[str, Any], hook: ComplianceHook | None = None
    ) -> None:
        """Report to lineage, and to the assets that the task updates.

        :param facts: about the events, besides the destination
        :param hook: what wrote it, for Airflow's own lineage
        """
        self._lineage = written
        if hook:
            written.report(hook)
        for outlet in self.outlets or ():
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update({**facts, "destination": str(self.destination)})
