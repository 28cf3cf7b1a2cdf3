from __future__ import annotations

from abc import ABC
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.policies import retry
from airflow_provider.policies.retry import JITTER_FRACTION, ComplianceRetryPolicy
from airflow_provider.runtime.non_retryable import as_non_retryable

needs_policies = pytest.mark.skipif(
    not issubclass(ComplianceRetryPolicy, ABC), reason="Airflow before 3.3 has no policies"
)


def decide(error: BaseException, try_number: int = 1, **kwargs: Any) -> tuple[str, float]:
    """Return the action, and the seconds of delay without their random part; 0 is the task's own."""
    decision = ComplianceRetryPolicy(**kwargs).evaluate(error, try_number, 5)
    seconds = decision.retry_delay.total_seconds() if decision.retry_delay else 0.0
    return decision.action.value, seconds


def about(seconds: float) -> Any:
    return pytest.approx(seconds * (1 + JITTER_FRACTION / 2), rel=JITTER_FRACTION / 2 + 0.001)


@needs_policies
def test_a_throttled_task_waits_as_long_as_the_service_asks_for() -> None:
    error = exc.ComplianceThrottledError("Too many.", status=429, retry_after=120.0)
    assert decide(error) == ("retry", about(120))
    assert decide(error, try_number=4) == ("retry", about(120))


@needs_policies
def test_a_server_error_with_retry_after_counts_too_up_to_the_limit() -> None:
    error = exc.ComplianceServerError("Maintenance.", status=503, retry_after=86_400.0)
    assert decide(error, max_delay=timedelta(minutes=30)) == ("retry", about(1800))


@needs_policies
@pytest.mark.parametrize(
    "error",
    [
        exc.ComplianceConnectionError("Not reachable."),
        exc.ComplianceServerError("Bad gateway.", status=502),
        exc.ComplianceThrottledError("Too many.", status=429),
    ],
)
def test_in_an_outage_the_delay_doubles_up_to_the_limit(error: exc.ComplianceError) -> None:
    seconds = [decide(error, number)[1] for number in (1, 2, 3, 20, 10_000)]
    assert seconds == [about(60), about(120), about(240), about(3600), about(3600)]


@needs_policies
@pytest.mark.parametrize(
    "error", [exc.ComplianceAuthError("Wrong password."), exc.ComplianceInputError("No such file.")]
)
def test_non_retryable_error_fails_at_once(error: exc.ComplianceError) -> None:
    assert decide(error) == ("fail", 0.0)
    assert decide(as_non_retryable(error)) == ("fail", 0.0)


@needs_policies
@pytest.mark.parametrize("error", [exc.ComplianceIngestError("3 failed."), KeyError("x"), MemoryError()])
def test_other_errors_are_left_to_the_task(error: BaseException) -> None:
    assert decide(error) == ("default", 0.0)


@needs_policies
def test_the_cause_of_an_error_decides() -> None:
    cause = exc.ComplianceThrottledError("Too many.", retry_after=7.0)
    error = RuntimeError("The task of a user")
    error.__cause__ = cause
    cause.__cause__ = error  # which must not hang
    assert decide(error) == ("retry", about(7))


@needs_policies
@pytest.mark.parametrize("name", ["outage_delay", "max_delay"])
@pytest.mark.parametrize("value", [timedelta(0), timedelta(-1), 60, None])
def test_delays_are_checked_when_the_dag_is_parsed(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a timedelta"):
        ComplianceRetryPolicy(**{name: value})


@needs_policies
def test_it_survives_serialization() -> None:
    policy = ComplianceRetryPolicy(timedelta(seconds=5), timedelta(minutes=2))
    copy = ComplianceRetryPolicy.deserialize(policy.serialize())
    assert (copy.outage_delay, copy.max_delay) == (policy.outage_delay, policy.max_delay)


def test_without_policies_in_airflow_it_says_what_to_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RetryDecision", None)
    with pytest.raises(exc.ComplianceConfigError, match=r"needs Airflow 3\.3.*retry_delay"):
        ComplianceRetryPolicy()


def test_chain_asks_our_policy_and_leaves_other_errors_to_the_next_one() -> None:
    module: Any = pytest.importorskip("airflow.sdk.definitions.retry_policy", reason="needs Airflow 3.3")
    if not hasattr(module, "ChainRetryPolicy"):
        pytest.skip("ChainRetryPolicy comes with Airflow 3.4")
    other = module.ExceptionRetryPolicy(
        rules=[module.RetryRule(exception=TimeoutError, retry_delay=timedelta(seconds=7))]
    )
    chain = module.ChainRetryPolicy([ComplianceRetryPolicy(), other])
    ours = chain.evaluate(exc.ComplianceThrottledError("Too many.", status=429, retry_after=120.0), 1, 5)
    assert (ours.action.value, ours.retry_delay.total_seconds()) == ("retry", about(120))
    assert ours.reason == "ComplianceRetryPolicy: The service asks to wait 120 s"
    assert chain.evaluate(exc.ComplianceAuthError("Wrong password."), 1, 5).action.value == "fail"
    assert chain.evaluate(TimeoutError(), 1, 5).retry_delay == timedelta(seconds=7)
