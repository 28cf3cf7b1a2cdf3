"""The client on requests. `Exchange` makes every decision; this driver only sends and waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from functools import partial, wraps
from typing import IO, Any, Concatenate, ParamSpec, TypeVar, cast

import requests
import urllib3.exceptions

from airflow_provider.client import batches, endpoints
from airflow_provider.client.base import BaseClient, Send, Steps, Wait
from airflow_provider.client.exchange import Exchange
from airflow_provider.client.http.bodies import BodyDecoder, BodyError
from airflow_provider.client.http.network import classify_error, proxy_host
from airflow_provider.client.http.transport import TimedSession, extend_deadline
from airflow_provider.client.http.uploads import (
    CHUNK_BYTES,
    CLOSE_SECONDS,
    DaemonThread,
    FileSource,
    MultipartUpload,
    fits_in_chunk,
    iter_chunks,
    read_timeout_error,
    write_all,
)
from airflow_provider.client.http.wire import (
    ERROR_BODY_BYTES,
    Body,
    Call,
    Failure,
    HttpRequest,
    HttpResponse,
    Pause,
)
from airflow_provider.client.models import Assessment, ContentJob
from airflow_provider.client.settings import Settings
from airflow_provider.exceptions import ComplianceError

P = ParamSpec("P")
T = TypeVar("T")

_NOT_CONNECTED = (
    requests.exceptions.ConnectTimeout,
    requests.exceptions.ProxyError,
    urllib3.exceptions.NewConnectionError,
)
_TIMED_OUT = (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
_FAILED = (BodyError, ComplianceError, requests.RequestException, urllib3.exceptions.HTTPError, OSError)


def _operation(endpoint: Callable[P, Call[T]]) -> Callable[Concatenate[ComplianceClient, P], T]:
    """Turn an endpoint into a method."""

    @wraps(endpoint)
    def method(self: ComplianceClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(endpoint(*args, **kwargs))

    return method


class ComplianceClient(BaseClient):
    """Client of the service on requests; thread-safe, and a context manager.

    A forked child gets its own connections and token. Pickle a hook, not a client: it has no credentials.

    :param settings: URLs, credentials, timeouts and retries
    :param shared: token, throttle pause and batch limit; by default shared by all clients with equal settings
    :param translate: maps an assessment record to one with `id`, `status` and `error`
    :param observer: is told of the outcome of every request, such as to count them; it must not raise
    """

    blocks_thread = True
    _session: requests.Session

    def _new_session(self) -> requests.Session:
        return TimedSession()

    submit_url = _operation(endpoints.submit_url)
    get_content = _operation(endpoints.get_content)
    cancel = _operation(endpoints.cancel)
    refresh = _operation(endpoints.refresh)
    list_frameworks = _operation(endpoints.list_frameworks)
    list_criteria = _operation(endpoints.list_criteria)
    submit_feedback = _operation(endpoints.submit_feedback)
    get_application_info = _operation(endpoints.get_application_info)
    get_assessment_results = _operation(endpoints.get_assessment_results)
    cancel_assessment = _operation(endpoints.cancel_assessment)
    request = _operation(endpoints.request)

    def submit_assessment(self, payload: Any) -> Assessment:
        """Submit an assessment; the payload is sent unchanged."""
        return self.run(endpoints.submit_assessment(payload, self._translate))

    def get_assessment(self, assessment_id: str | int) -> Assessment:
        """Get the status of an assessment."""
        return self.run(endpoints.get_assessment(assessment_id, self._translate))

    def submit_file(self, file: FileSource, file_name: str | None = None) -> ContentJob:
        """Submit a document; it is streamed."""
        with closing(DaemonThread()) as thread:
            upload = _result(thread.submit(MultipartUpload, file, file_name, thread), self.settings)
            try:
                return self.run(endpoints.submit_file(upload))
            finally:
                if upload.content is None:
                    # Do not wait for a hanging read: the file is closed when it returns.
                    wait([thread.submit(upload.close)], CLOSE_SECONDS)

    def get_status(self, uuid: str) -> ContentJob:
        """Get the status of one job."""
        return self._perform(self._flow(batches.get_status(uuid)))

    def get_statuses(self, uuids: Iterable[str]) -> dict[str, ContentJob]:
        """Get the status of any number of jobs; unknown ones are absent from the result."""
        return self._perform(self._flow(batches.get_statuses(uuids, self._shared.batch)))

    def download_content(self, uuid: str, target: IO[bytes]) -> int:
        """Write the extracted text as UTF-8 to an open binary file; return the byte count."""
        with self.stream_content(uuid) as pieces:
            return sum(write_all(target, piece) for piece in pieces)

    @contextmanager
    def stream_content(self, uuid: str) -> Iterator[Iterator[bytes]]:
        """Stream the extracted text as UTF-8; a truncated one is an error."""

        def utf8() -> Iterator[bytes]:
            for piece in response.stream:
                yield text.feed(piece)
            yield text.finish()

        text, response = self.run(endpoints.stream_content(uuid))
        with closing(response):
            yield utf8()

    def run(self, call: Call[T]) -> T:
        """Send one call and return its result."""
        return self._perform(self._call(call))

    def _perform(self, steps: Steps[T]) -> T:
        result: Any = None
        with closing(steps):
            while True:
                try:
                    step = steps.send(result)
                except StopIteration as end:
                    return cast("T", end.value)
                match step:
                    case Send(exchange, request):
                        result = self._send(exchange, request)
                    case Pause(seconds):
                        time.sleep(seconds)
                    case Wait(future, seconds):
                        wait([future], seconds)

    def close(self) -> None:
        """Close all connections; other clients keep the shared token."""
        self._session.close()

    def __enter__(self) -> ComplianceClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, exchange: Exchange[Any], request: HttpRequest) -> HttpResponse | Failure:
        call, seconds = exchange.call, self.settings.response_timeout
        body, proxy = request.body, self._proxy(call)
        try:
            response = self._session.request(
                request.method,
                request.url,
                headers=dict(request.headers),
                data=body if body is None or fits_in_chunk(body) else _Stream(body, self.settings),
                timeout=self.settings.timeout,
                verify=self._ca_file or False,
                proxies={"http": proxy, "https": proxy} if proxy else {},
                allow_redirects=False,
                stream=True,
            )
        except _FAILED as error:
            return _failure(error)
        headers = {name.lower(): value for name, value in response.headers.items()}
        is_ok, content, stream = 200 <= response.status_code < 300, bytearray(), None
        try:
            decoder = BodyDecoder(headers, call.limit if is_ok else ERROR_BODY_BYTES)
            if is_ok and call.stream:
                stream = _map_errors(_read_body(response, decoder, seconds, per_chunk=True), exchange)
            elif call.method != "HEAD":
                for piece in _read_body(response, decoder, seconds, per_chunk=False):
                    content += piece
        except _FAILED as error:
            if is_ok:
                return _failure(error)
        finally:
            if stream is None:
                response.close()
        return HttpResponse(
            response.status_code,
            headers,
            bytes(content),
            request.url,
            proxy_host(proxy),
            stream,
            response.close,
        )


class _Stream:
    """A body in the form that requests takes: with a length, and read from its start by each iteration."""

    def __init__(self, body: bytes | Body, settings: Settings) -> None:
        self._body, self._settings = body, settings

    def __len__(self) -> int:
        return len(self._body) if isinstance(self._body, bytes) else self._body.length

    def __iter__(self) -> Iterator[bytes]:
        for chunk in iter_chunks(self._body):
            yield _result(chunk, self._settings) if isinstance(chunk, Future) else chunk


def _result(future: Future[T], settings: Settings) -> T:
    """Wait for a read from a store."""
    wait([future], settings.response_timeout)
    if not future.done():
        raise read_timeout_error(settings.response_timeout)
    return future.result()


def _read_body(
    response: requests.Response, decoder: BodyDecoder, seconds: float, *, per_chunk: bool
) -> Iterator[bytes]:
    """Read a body, with a timeout for the whole or for each chunk."""
    extend_deadline(response, seconds)
    while data := response.raw.read(CHUNK_BYTES, decode_content=False):
        yield from decoder.feed(data)
        if per_chunk:
            extend_deadline(response, seconds)
    decoder.finish()


def _map_errors(pieces: Iterator[bytes], exchange: Exchange[Any]) -> Iterator[bytes]:
    try:
        yield from pieces
    except _FAILED as error:
        raise exchange.stream_error(_failure(error)) from None


_failure = partial(classify_error, not_connected=_NOT_CONNECTED, timed_out=_TIMED_OUT)
