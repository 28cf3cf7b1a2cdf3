"""Which process renews shared tokens, and what the others take over, without I/O."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider import exceptions as exc
from airflow_provider.client.base import SharedState, TokenProvider
from airflow_provider.client.exchange import Exchange, Retry, ThrottlePause
from airflow_provider.client.http.wire import Call, HttpResponse, LocalIO, Pause
from airflow_provider.client.tokens import (
    ACCEPTED_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    MAX_POLL_SECONDS,
    REFUSAL_CACHE_SECONDS,
    AccessToken,
    TokenCache,
    TokenStoreError,
    renew_with_store,
)
from tests.client.test_tokens import answer
from tests.support.clock import ManualClock
from tests.support.service import Reply, Service
from tests.support.values import settings_for

SETTINGS = settings_for("https://api.example.com", token_url="https://id.example/token", share_tokens=True)
WRONG = exc.ComplianceAuthError(f"Refused: check {SETTINGS.name}.")
DOWN = exc.ComplianceServerError("down", status=500)


class Store:
    """A store in memory; `holder` has its lock."""

    def __init__(self) -> None:
        self.snapshot: SecretStr | None = None
        self.holder: object | None = None
        self.is_usable = True
        self.saves = 0

    def try_lock(self) -> Lock | None:
        if not self.is_usable:
            raise TokenStoreError
        if self.holder:
            return None
        self.holder = Lock(self)
        return self.holder

    def load(self) -> SecretStr | None:
        return self.snapshot

    def save(self, snapshot: SecretStr) -> None:
        self.snapshot = snapshot
        self.saves += 1

    @property
    def record(self) -> dict[str, Any]:
        assert self.snapshot
        return dict(json.loads(self.snapshot.get_secret_value()))


class Lock:
    def __init__(self, store: Store) -> None:
        self._store = store

    def release(self) -> None:
        assert self._store.holder is self
        self._store.holder = None


class Process:
    """One of the processes that share a store: its clocks, its cache, and how long it waits."""

    def __init__(self, store: Store, clock: ManualClock, **changes: Any) -> None:
        self.store, self.clock, self.wall_clock = store, clock, ManualClock()
        settings = settings_for("https://api.example.com", **{"share_tokens": True, **changes})
        self.cache = TokenCache(settings, clock, lambda: clock.now + self.wall_clock.now)
        self.pauses: list[float] = []

    def flow(self, refused: AccessToken | None = None) -> Generator[Any, Any, AccessToken]:
        return renew_with_store(self.cache, self.store, refused, clock=self.clock, jitter=lambda: 0.0)

    def renew(self, *answers: Any, refused: AccessToken | None = None) -> tuple[AccessToken, list[str]]:
        """Renew with these answers of the identity provider; return which grants it was asked for."""
        flow, queue = self.flow(refused), list(answers)
        grants: list[str] = []
        resume: Callable[[Any], Any] = flow.send
        result: Any = None
        while True:
            try:
                step = resume(result)
            except StopIteration as end:
                assert not queue
                return end.value, grants
            resume = flow.send
            match step:
                case LocalIO(function):
                    try:
                        result = function()
                    except TokenStoreError as error:
                        resume, result = flow.throw, error
                case Pause(seconds):
                    self.pauses.append(seconds)
                    self.clock.now += seconds
                    result = None
                case Call(form=form):
                    assert form
                    grants.append(str(form["grant_type"]))
                    result = queue.pop(0)
                    if isinstance(result, Exception):
                        resume = flow.throw


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def first(store: Store, clock: ManualClock) -> Process:
    return Process(store, clock)


@pytest.fixture
def second(store: Store, clock: ManualClock) -> Process:
    return Process(store, clock)


def test_the_second_process_takes_the_token_of_the_first(first: Process, second: Process) -> None:
    token, grants = first.renew(answer("a", expires_in=300))
    assert (grants, token.is_adopted) == (["password"], False)
    first.clock.now += 100
    taken, grants = second.renew()
    assert (grants, taken, taken.is_adopted) == ([], token, True)
    assert taken.renew_at == token.renew_at
    assert first.store.holder is None
    assert second.cache.get_usable() is taken


def test_tokens_are_renewed_in_turn_each_refresh_token_once(first: Process, second: Process) -> None:
    first.renew(answer("a", expires_in=300))
    second.renew()
    first.clock.now += 271
    _, grants = second.renew(answer("b", expires_in=300))
    assert grants == ["refresh_token"]
    token, grants = first.renew()
    assert (token.secret.get_secret_value(), grants) == ("b", [])
    first.clock.now += 271
    call = first.flow()
    steps = [next(call)]  # the lock
    steps.append(call.send(steps[0].function()))
    refresh = call.send(steps[1].function())
    assert refresh.form["refresh_token"].get_secret_value() == "r-b"


def test_a_refused_password_is_known_to_all(first: Process, clock: ManualClock) -> None:
    with pytest.raises(exc.ComplianceAuthError):
        first.renew(WRONG)
    second = Process(first.store, clock, name="the Airflow connection 'other'")
    clock.now += 10
    with pytest.raises(exc.ComplianceAuthError) as caught:
        second.renew()
    assert str(caught.value) == (
        "Refused: check the Airflow connection 'other'. Another process on this host was refused; the next "
        "attempt is in 290 s."
    )
    assert not caught.value.transient
    assert first.store.holder is None
    clock.now += REFUSAL_CACHE_SECONDS - 10
    _, grants = second.renew(answer("a", expires_in=300))
    assert grants == ["password"]
    first.renew()


@pytest.fixture
def private(store: Store, clock: ManualClock) -> Callable[[], Process]:
    """Make processes that share no tokens."""
    return lambda: Process(store, clock, share_tokens=False)


def test_without_sharing_a_refusal_is_known_to_all_and_tokens_to_none(
    private: Callable[[], Process], store: Store, clock: ManualClock
) -> None:
    first, second, third = private(), private(), private()
    _, grants = first.renew(answer("a", expires_in=300))
    assert grants == ["password"]
    assert set(store.record) == {"version", "saved_at"}
    clock.now += ACCEPTED_SECONDS
    with pytest.raises(exc.ComplianceAuthError):
        second.renew(WRONG)
    with pytest.raises(exc.ComplianceAuthError, match="Another process on this host was refused"):
        third.renew()
    clock.now += 271 - ACCEPTED_SECONDS
    _, grants = first.renew(answer("b", expires_in=300))  # its own refresh token is still good
    assert grants == ["refresh_token"]
    clock.now += REFUSAL_CACHE_SECONDS
    _, grants = third.renew(answer("c", expires_in=300))
    assert grants == ["password"]


def test_without_sharing_logins_take_turns_until_one_is_good(
    private: Callable[[], Process], store: Store, clock: ManualClock
) -> None:
    first, second, third = private(), private(), private()
    flow = first.flow()
    store.holder = lock = Lock(store)  # as of a process that logs in
    assert isinstance(flow.send(flow.send(next(flow).function()).function()), Pause)
    lock.release()
    second.renew(answer("a", expires_in=300))
    store.holder = Lock(store)
    _, grants = third.renew(answer("b", expires_in=300))
    assert (grants, third.pauses) == (["password"], [])
    assert isinstance(flow.send(flow.send(flow.send(None).function()).function()), Call)
    clock.now += ACCEPTED_SECONDS
    assert not third.cache.is_accepted


def test_a_refused_refresh_token_is_not_tried_by_the_next_process(first: Process, second: Process) -> None:
    first.renew(answer("a", expires_in=300))
    first.clock.now += 271
    with pytest.raises(exc.ComplianceServerError):
        first.renew(WRONG, DOWN)
    assert first.store.holder is None
    _, grants = second.renew(answer("b"))
    assert grants == ["password"]


def test_an_outage_changes_nothing_in_the_store(first: Process, second: Process) -> None:
    first.renew(answer("a", expires_in=300))
    first.clock.now += 271
    with pytest.raises(exc.ComplianceServerError):
        first.renew(DOWN)
    assert (first.store.saves, first.store.holder) == (1, None)
    _, grants = second.renew(answer("b"))
    assert grants == ["refresh_token"]


def test_a_token_that_the_service_refuses_is_renewed_once_for_all(first: Process, second: Process) -> None:
    old, _ = first.renew(answer("a", expires_in=300))
    taken, _ = second.renew()
    new, grants = first.renew(answer("b", expires_in=300), refused=old)
    assert grants == ["refresh_token"]
    token, grants = second.renew(refused=taken)
    assert (token, grants) == (new, [])
    fresh, grants = second.renew(answer("c", expires_in=300), refused=token)  # taken over, and refused, too
    assert (grants, fresh.is_adopted) == (["refresh_token"], False)


@pytest.mark.parametrize("has_token", [False, True])
def test_a_lock_that_is_never_released_is_not_waited_for(
    first: Process, second: Process, has_token: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if has_token:
        first.renew(answer("a", expires_in=300))
        first.clock.now += 271
    first.store.holder = stopped = object()
    start = first.clock.now
    _, grants = second.renew(answer("b", expires_in=300))
    assert grants == ["password"]  # the one who is stopped may be using the refresh token
    assert LOCK_TIMEOUT_SECONDS <= second.clock.now - start < LOCK_TIMEOUT_SECONDS + MAX_POLL_SECONDS
    assert "logging in for more than 60 s" in caplog.text
    assert second.pauses == sorted(second.pauses)
    assert first.store.holder is stopped
    token, grants = first.renew()  # and all others take what it has got
    assert (token.secret.get_secret_value(), grants) == ("b", [])


def wait_for_lock(process: Process, jitter: float) -> list[float]:
    """Wait for a lock that another process keeps; return all pauses until the login without it."""
    process.store.holder = object()
    process.clock.now, pauses = 0.0, []
    flow = renew_with_store(process.cache, process.store, None, clock=process.clock, jitter=lambda: jitter)
    step: Any = next(flow)
    while not isinstance(step, Call):
        if isinstance(step, Pause):
            pauses.append(step.seconds)
            process.clock.now += step.seconds
            step = flow.send(None)
        else:
            step = flow.send(step.function())
    return pauses


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_pauses_for_the_lock_double_up_to_half_a_second(
    first: Process, caplog: pytest.LogCaptureFixture, jitter: float, share: float
) -> None:
    pauses = wait_for_lock(first, jitter)
    assert pauses[:7] == pytest.approx([share * each for each in (0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5)])
    assert set(pauses[7:]) == {share * 0.5}
    assert 0 <= sum(pauses) - LOCK_TIMEOUT_SECONDS * (1 + jitter) < 0.5
    assert len([record for record in caplog.records if "has been logging in for more" in record.message]) == 1


def test_without_a_usable_store_each_process_renews_its_own_token(first: Process) -> None:
    first.store.is_usable = False
    _, grants = first.renew(answer("a", expires_in=300))
    _, more = first.renew(answer("b", expires_in=300))
    assert (grants, more) == (["password"], ["refresh_token"])
    assert first.store.snapshot is None


@pytest.mark.parametrize("who", ["saved", "taken over"])
def test_a_shared_refresh_token_is_not_used_without_the_store(
    first: Process, second: Process, who: str
) -> None:
    first.renew(answer("a", expires_in=300))
    second.renew()
    process = first if who == "saved" else second
    process.store.is_usable = False
    process.clock.now += 271
    assert process.renew(answer("b", expires_in=300))[1] == ["password"]


def test_hanging_store_stops_no_process_and_releases_the_lock(first: Process) -> None:
    first.renew(answer("a", expires_in=300))
    first.clock.now += 271
    flow = first.flow()
    loading = flow.send(next(flow).function())
    assert first.store.holder
    login = flow.throw(TokenStoreError())
    assert (login.form["grant_type"], loading) == ("password", LocalIO(first.store.load))
    with pytest.raises(StopIteration):
        flow.send(answer("b", expires_in=300))
    assert first.store.holder is None
    assert first.store.record["access_token"] == "a"


@pytest.mark.parametrize("moment", ["lock", "load", "call", "save"])
def test_an_interruption_at_any_moment_releases_the_lock(first: Process, moment: str) -> None:
    flow = first.flow()
    steps: list[Any] = [next(flow)]
    if moment != "lock":
        steps.append(flow.send(steps[-1].function()))
    if moment in ("call", "save"):
        steps.append(flow.send(steps[-1].function()))
        assert isinstance(steps[-1], Call)
    if moment == "save":
        steps.append(flow.send(answer("a")))
    flow.close()
    assert first.store.holder is None


def test_a_clock_that_was_set_back_costs_a_login_at_most(first: Process, second: Process) -> None:
    first.renew(answer("a", expires_in=300))
    second.wall_clock.now -= 3600
    _, grants = second.renew(answer("b", expires_in=300))
    assert grants == ["password"]


def test_a_clock_that_was_set_forward_costs_a_renewal(first: Process, second: Process) -> None:
    first.renew(answer("a", expires_in=300, refresh_expires_in=1800))
    second.wall_clock.now += 600
    _, grants = second.renew(answer("b", expires_in=300))
    assert grants == ["refresh_token"]
    second.wall_clock.now += 1e6
    third = Process(first.store, second.clock)
    third.wall_clock.now = second.wall_clock.now
    _, grants = third.renew(answer("c", expires_in=300))
    assert grants == ["refresh_token"]  # without an end


@pytest.mark.parametrize(
    "snapshot",
    [
        "",
        "[]",
        "{}",
        '{"version": "x"}',
        '{"version": "x", "saved_at": "yesterday"}',
        '{"version": "x", "saved_at": 0, "access_token": "a"}',
        '{"version": "x", "saved_at": 0, "access_token": "a", "renew_at": null, "refresh_token": ""}',
        '{"version": "x", "saved_at": 0, "refusal": "no"}',
    ],
)
def test_a_snapshot_that_makes_no_sense_is_ignored_and_replaced(first: Process, snapshot: str) -> None:
    first.store.snapshot = SecretStr(snapshot)
    _, grants = first.renew(answer("a", expires_in=300))
    assert grants == ["password"]
    assert first.store.record["access_token"] == "a"


# -- a 401 with a token of another process

URL = "https://api.example.com/x"
READ = Call("GET", "/x", parse=lambda _: None)


def refuse(found: Exchange[None], token: AccessToken) -> Retry:
    found.next_request(token)
    result = found.evaluate(HttpResponse(401, {}, b"", URL))
    assert isinstance(result, Retry)
    assert found.refused_token is token
    return result


def own(name: str) -> AccessToken:
    return AccessToken(SecretStr(name))


def adopted(name: str) -> AccessToken:
    return AccessToken(SecretStr(name), is_adopted=True)


@pytest.mark.parametrize(
    ("refused", "last"),
    [
        ([own("a")], own("b")),
        ([adopted("a")], own("b")),
        ([own("a"), adopted("b")], own("c")),
        ([adopted("a"), adopted("b")], own("c")),
        # Saved by another process after this call took the one before: it is fresh.
        ([own("a"), adopted("b")], adopted("c")),
    ],
)
def test_only_a_fresh_token_that_is_refused_is_an_error(
    refused: list[AccessToken], last: AccessToken
) -> None:
    found = Exchange(READ, SETTINGS, ThrottlePause())
    for token in refused:
        refuse(found, token)
    found.next_request(last)
    with pytest.raises(exc.ComplianceAuthError, match="with a fresh token"):
        found.evaluate(HttpResponse(401, {}, b"", URL))


# -- the drivers


def test_a_store_that_hangs_is_given_up(
    connect: Any, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    over = threading.Event()
    lock = Store.try_lock

    def lock_then_hurry(store: Store) -> Lock | None:
        locked = lock(store)
        monkeypatch.setattr("airflow_provider.client.base.LOCAL_IO_SECONDS", 0.05)
        return locked

    monkeypatch.setattr(Store, "try_lock", lock_then_hurry)
    monkeypatch.setattr(Store, "load", lambda _: over.wait(240) and None)
    service.on("GET /api/v1/frameworks", Reply(json=[]))
    settings, store = settings_for(service.url, share_tokens=True), Store()
    try:
        assert connect(settings, SharedState(settings, store))("list_frameworks") == []
    finally:
        over.set()
    assert service.grants() == ["password"]
    assert (store.saves, store.holder) == (0, None)
    assert "the file system has hung" in caplog.text


# -- the state of a process


def test_who_must_not_wait_does_not(store: Store, clock: ManualClock) -> None:
    store.holder = object()
    provider = TokenProvider(TokenCache(SETTINGS, clock), store)
    flow = provider.renew(None, may_wait=False)
    step: Any = next(flow)
    step = flow.send(step.function())
    assert isinstance(flow.send(step.function()), Call)
