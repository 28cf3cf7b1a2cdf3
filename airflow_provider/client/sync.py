"""The client on requests. It has no opinions: `Exchange` decides, this sends and waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from http.cookiejar import DefaultCookiePolicy
from typing import IO, Any, Concatenate, ParamSpec, TypeGuard, TypeVar, cast

import requests
import urllib3.exceptions

from airflow_provider.client import endpoints
from airflow_provider.client.exchange import Done, Exchange
from airflow_provider.client.http.bodies import BodyDecoder, BodyError
from airflow_provider.client.http.network import ca_file, failure, proxy_for
from airflow_provider.client.http.transport import TimedAdapter, allow
from airflow_provider.client.http.uploads import (
    CHUNK_BYTES,
    FileSource,
    MultipartUpload,
    close,
    iter_chunks,
    read_timeout_error,
    run_in_daemon_thread,
    write_all,
)
from airflow_provider.client.models import Assessment, ContentJob
from airflow_provider.client.responses import Translate
from airflow_provider.client.settings import Endpoints, Settings
from airflow_provider.client.sharing import SharedState, bind_to_process, get_shared_state, leave_to_parent
from airflow_provider.client.tokens import AccessToken
from airflow_provider.client.wire import (
    ERROR_BODY_BYTES,
    Body,
    Call,
    Failure,
    HttpRequest,
    HttpResponse,
)
from airflow_provider.exceptions import ComplianceError

P = ParamSpec("P")
T = TypeVar("T")

_NOT_CONNECTED = (
    requests.exceptions.ConnectTimeout,
    requests.exceptions.ProxyError,
    urllib3.exceptions.NewConnectionError,
)
_TIMED_OUT = (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
_FAILED = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)


def _operation(endpoint: Callable[P, Call[T]]) -> Callable[Concatenate[ComplianceClient, P], T]:
    """Make a method of an endpoint."""

    @wraps(endpoint)
    def method(self: ComplianceClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(endpoint(*args, **kwargs))

    return method


def _configured(
    endpoint: Callable[Concatenate[Endpoints, P], Call[T]],
) -> Callable[Concatenate[ComplianceClient, P], T]:
    """Make a method of an endpoint whose path is a setting."""

    @wraps(endpoint)
    def method(self: ComplianceClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(endpoint(self.settings.endpoints, *args, **kwargs))

    return method


class ComplianceClient:
    """Talks to the service with requests; usable by several threads, and as a context manager.

    In a forked child it has connections and a token of its own. A pickle of it holds its settings, and so the
    credentials: where that matters, pickle a hook.

    :param settings: addresses, credentials and habits
    :param shared: token, pause and batch limit; by default shared by all clients with equal settings
    :param translate: turns a record of an assessment into one with `id`, `status` and `error`
    """

    def __init__(
        self, settings: Settings, *, shared: SharedState | None = None, translate: Translate = dict
    ) -> None:
        self.settings = settings
        self._shared = shared or get_shared_state(settings)
        self._translate = translate
        self._verify = ca_file(settings.verify) or False
        self._session = _new_session()
        bind_to_process(self)

    def after_fork(self) -> None:
        """Begin anew in a forked child: on a socket that two processes use answers get mixed up."""
        leave_to_parent(self._session)
        self._session = _new_session()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has connections of its own.
        return partial(type(self), self.settings, shared=self._shared, translate=self._translate), ()

    @property
    def has_worked(self) -> bool:
        """Whether the service has answered an authorized call of this process well, with these settings."""
        return self._shared.has_worked

    @property
    def is_logged_in(self) -> bool:
        """Whether the identity provider has taken these credentials, and has not refused them since."""
        return self._shared.is_logged_in

    submit_url = _operation(endpoints.submit_url)
    get_status = _operation(endpoints.get_status)
    get_content = _operation(endpoints.get_content)
    cancel = _operation(endpoints.cancel)
    refresh = _operation(endpoints.refresh)
    list_frameworks = _operation(endpoints.list_frameworks)
    list_criteria = _operation(endpoints.list_criteria)
    submit_feedback = _operation(endpoints.submit_feedback)
    get_application_info = _configured(endpoints.get_application_info)
    get_assessment_results = _configured(endpoints.get_assessment_results)
    cancel_assessment = _configured(endpoints.cancel_assessment)
    request = _operation(endpoints.request)

    def submit_assessment(self, payload: Any) -> Assessment:
        """Submit an assessment; the payload goes through as it is."""
        paths = self.settings.endpoints
        return self.run(endpoints.submit_assessment(paths, payload, self._translate))

    def get_assessment(self, assessment_id: str | int) -> Assessment:
        """Ask for the state of an assessment."""
        paths = self.settings.endpoints
        return self.run(endpoints.get_assessment(paths, assessment_id, self._translate))

    def submit_file(self, file: FileSource, file_name: str | None = None) -> ContentJob:
        """Submit a document, streamed from where it is."""
        document = MultipartUpload(file, file_name)
        try:
            return self.run(endpoints.submit_file(document))
        finally:
            close(document)

    def get_statuses(self, uuids: Iterable[str]) -> dict[str, ContentJob]:
        """Ask for any number of jobs; one that the service does not know is absent in the result."""
        return self.run_flow(endpoints.get_statuses(uuids, self._shared.batch))

    def download_content(self, uuid: str, target: IO[bytes]) -> int:
        """Write the extracted text as UTF-8 to an open binary file; return the byte count."""
        with self.stream_content(uuid) as pieces:
            return sum(write_all(target, piece) for piece in pieces)

    @contextmanager
    def stream_content(self, uuid: str) -> Iterator[Iterator[bytes]]:
        """Get the extracted text piece by piece, as UTF-8; one that breaks off is an error."""

        def utf8() -> Iterator[bytes]:
            for piece in pieces:
                yield text.feed(piece)
            yield text.finish()

        with self._open(endpoints.stream_content(uuid)) as (text, pieces):
            yield utf8()

    def run(self, call: Call[T]) -> T:
        """Carry out one call."""
        with self._open(call) as (value, _):
            return value

    def run_flow(self, flow: endpoints.Flow[T]) -> T:
        """Carry out an operation of several calls."""
        step: Callable[[Any], Call[Any]] = flow.send
        result: Any = None
        while True:
            try:
                call = step(result)
            except StopIteration as end:
                return cast("T", end.value)
            try:
                step, result = flow.send, self.run(call)
            except ComplianceError as error:
                step, result = flow.throw, error

    def close(self) -> None:
        """Close all connections; the token stays for others."""
        self._session.close()

    def __enter__(self) -> ComplianceClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _open(self, call: Call[T]) -> Iterator[tuple[T, Iterator[bytes]]]:
        """Send a call until it is answered; give its value and, where streamed, the pieces of its body."""
        exchange = Exchange(call, self.settings, self._shared.throttle_pause(call), self._shared.has_worked)
        while True:
            time.sleep(exchange.delay())
            token = self._token(exchange.refused_token) if call.authorized else None
            with ExitStack() as stack:
                outcome, pieces = self._send(exchange.next_request(token), call, stack)
                match exchange.evaluate(outcome):
                    case Done(value):
                        self._shared.has_worked |= call.authorized
                        yield value, _whole(pieces, exchange)
                        return

    def _token(self, refused: AccessToken | None) -> AccessToken:
        provider = self._shared.tokens
        while True:
            acquired = provider.acquire(refused)
            if isinstance(acquired, AccessToken):
                return acquired
            if acquired.is_leader:
                with provider.refreshing(acquired):
                    return self.run_flow(provider.cache.renew())
            # A leader on this very thread, in an event loop, can't go on while we block it.
            refresh_timeout = 0 if acquired.thread == threading.get_ident() else self._shared.refresh_timeout
            try:
                if token := acquired.future.result(refresh_timeout):
                    return token
            except TimeoutError:
                provider.abandon(acquired)

    def _send(
        self, request: HttpRequest, call: Call[Any], stack: ExitStack
    ) -> tuple[HttpResponse | Failure, Iterator[bytes]]:
        """Send one request; give what came of it and, where it is streamed, the body to be read."""
        body, proxy, seconds = request.body, proxy_for(request.url), self.settings.response_timeout
        try:
            response = self._session.request(
                request.method,
                request.url,
                headers=dict(request.headers),
                data=body if body is None or _is_small(body) else _Stream(body, seconds),
                timeout=self.settings.timeout,
                verify=self._verify,
                proxies={"http": proxy, "https": proxy} if proxy else {},
                allow_redirects=False,
                stream=True,
            )
        except ComplianceError as error:  # raised by the body; the frames on the way here hold the token
            raise error.with_traceback(None) from None
        except _FAILED as error:
            return _failure(error), iter(())
        stack.callback(response.close)
        headers = {name.lower(): value for name, value in response.headers.items()}
        good, content = 200 <= response.status_code < 300, bytearray()
        pieces: Iterator[bytes] = iter(())
        try:
            decoder = BodyDecoder(headers, call.limit if good else ERROR_BODY_BYTES)
            if good and call.stream:
                pieces = _pieces(response, decoder, seconds, for_each=True)
            elif call.method != "HEAD":
                for piece in _pieces(response, decoder, seconds, for_each=False):
                    content += piece
        except (BodyError, *_FAILED) as error:
            if good:
                return _failure(error), iter(())
        between = (proxy or "").rpartition("@")[2].removeprefix("http://")
        return HttpResponse(response.status_code, headers, bytes(content), request.url, between), pieces


class _Session(requests.Session):
    """A session that never looks at where an answer redirects to; a malformed address is not its business."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Find none: redirects are not followed."""


def _new_session() -> requests.Session:
    session = _Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    for scheme in ("http://", "https://"):
        session.mount(scheme, TimedAdapter(pool_maxsize=32))
    return session


class _Stream:
    """A body as requests wants it: with a length, and read from its start at each iteration."""

    def __init__(self, body: bytes | Body, seconds: float) -> None:
        self._body, self._seconds = body, seconds

    def __len__(self) -> int:
        return len(self._body) if isinstance(self._body, bytes) else self._body.length

    def __iter__(self) -> Iterator[bytes]:
        chunks = iter_chunks(self._body)
        try:
            while (piece := run_in_daemon_thread(next, chunks, None).result(self._seconds)) is not None:
                yield piece
        except TimeoutError:
            raise read_timeout_error(self._seconds) from None


def _is_small(body: bytes | Body) -> TypeGuard[bytes]:
    return isinstance(body, bytes) and len(body) <= CHUNK_BYTES


def _pieces(
    response: requests.Response, decoder: BodyDecoder, seconds: float, *, for_each: bool
) -> Iterator[bytes]:
    """Read a body, within that time or with that time for each piece."""
    allow(response, seconds)
    while data := response.raw.read(CHUNK_BYTES, decode_content=False):
        yield from decoder.feed(data)
        if for_each:
            allow(response, seconds)
    decoder.finish()


def _whole(pieces: Iterator[bytes], exchange: Exchange[Any]) -> Iterator[bytes]:
    try:
        yield from pieces
    except (BodyError, *_FAILED) as error:
        raise exchange.broken(_failure(error)) from None


def _failure(error: BaseException) -> Failure:
    return error.failure if isinstance(error, BodyError) else failure(error, _NOT_CONNECTED, _TIMED_OUT)
