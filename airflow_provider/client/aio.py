"""The client on aiohttp. `Exchange` makes every decision; this driver only sends and waits."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager, closing, suppress
from contextvars import ContextVar
from functools import wraps
from typing import IO, Any, Concatenate, ParamSpec, TypeVar, cast

import aiohttp
from yarl import URL

from airflow_provider.client import batches, endpoints
from airflow_provider.client.base import BaseClient, Send, Steps, Wait
from airflow_provider.client.exchange import Exchange
from airflow_provider.client.http.bodies import BodyDecoder, BodyError
from airflow_provider.client.http.network import classify_error, proxy_host, tls_context
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

P = ParamSpec("P")
T = TypeVar("T")

_NOT_CONNECTED = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
)
MAX_HEADER_BYTES = 65536  # bytes, as with requests
_FAILED = (BodyError, aiohttp.ClientError, OSError)


def _operation(
    endpoint: Callable[P, Call[T]],
) -> Callable[Concatenate[AsyncComplianceClient, P], Coroutine[Any, Any, T]]:
    """Turn an endpoint into a method."""

    @wraps(endpoint)
    async def method(self: AsyncComplianceClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(endpoint(*args, **kwargs))

    return method


class AsyncComplianceClient(BaseClient):
    """Client of the service on aiohttp; an async context manager, bound to one event loop of one process.

    :param settings: URLs, credentials, timeouts and retries
    :param shared: token, throttle pause and batch limit; by default shared by all clients with equal settings
    :param translate: maps an assessment record to one with `id`, `status` and `error`
    :param observer: is told of the outcome of every request, such as to count them; it must not raise
    """

    _session: aiohttp.ClientSession | None

    def _new_session(self) -> None:
        """Leave it to `__aenter__`: a session belongs to an event loop."""

    submit_url = _operation(endpoints.submit_url)
    get_content = _operation(endpoints.get_content)
    cancel = _operation(endpoints.cancel)
    refresh = _operation(endpoints.refresh)
    list_frameworks = _operation(endpoints.list_frameworks)
    list_criteria = _operation(endpoints.list_criteria)
    submit_feedback = _operation(endpoints.submit_feedback)
    get_application_info = _operation(endpoints.get_application_info)
    get_assessment_results = _operation(endpoints.get_assessment_results)
    get_raw_assessment_results = _operation(endpoints.get_raw_assessment_results)
    cancel_assessment = _operation(endpoints.cancel_assessment)
    request = _operation(endpoints.request)

    async def submit_assessment(self, payload: Any) -> Assessment:
        """Submit an assessment; the payload is sent unchanged."""
        return await self.run(endpoints.submit_assessment(payload, self._translate))

    async def get_assessment(self, assessment_id: str | int) -> Assessment:
        """Get the status of an assessment."""
        return await self.run(endpoints.get_assessment(assessment_id, self._translate))

    async def submit_file(self, file: FileSource, file_name: str | None = None) -> ContentJob:
        """Submit a document; it is streamed, and read in a thread."""
        with closing(DaemonThread()) as thread:
            opening = thread.submit(MultipartUpload, file, file_name, thread)
            upload = await _wait_for_read(opening, self.settings.response_timeout)
            try:
                return await self.run(endpoints.submit_file(upload))
            finally:
                if upload.content is None:
                    # Do not wait for a hanging read: the file is closed when it returns.
                    await _wait(thread.submit(upload.close), CLOSE_SECONDS)

    async def get_status(self, uuid: str) -> ContentJob:
        """Get the status of one job."""
        return await self._perform(self._flow(batches.get_status(uuid)))

    async def get_statuses(self, uuids: Iterable[str]) -> dict[str, ContentJob]:
        """Get the status of any number of jobs; unknown ones are absent from the result."""
        return await self._perform(self._flow(batches.get_statuses(uuids, self._shared.batch)))

    async def download_content(self, uuid: str, target: IO[bytes]) -> int:
        """Write the extracted text as UTF-8 to an open binary file, in a thread; return the byte count."""
        async with self.stream_content(uuid) as pieces:
            return sum([await asyncio.to_thread(write_all, target, piece) async for piece in pieces])

    @asynccontextmanager
    async def stream_content(self, uuid: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the extracted text as UTF-8; a truncated one is an error."""

        async def utf8() -> AsyncIterator[bytes]:
            async for piece in response.stream:
                yield text.feed(piece)
            if rest := text.finish():
                yield rest

        text, response = await self.run(endpoints.stream_content(uuid))
        with closing(response):
            yield utf8()

    async def run(self, call: Call[T]) -> T:
        """Send one call and return its result."""
        return await self._perform(self._call(call))

    async def _perform(self, steps: Steps[T]) -> T:
        result: Any = None
        with closing(steps):
            while True:
                try:
                    step = steps.send(result)
                except StopIteration as end:
                    return cast("T", end.value)
                match step:
                    case Send(exchange, request):
                        result = await self._send(exchange, request)
                    case Pause(seconds):
                        await asyncio.sleep(seconds)
                    case Wait(future, seconds):
                        await _wait(future, seconds)

    async def __aenter__(self) -> AsyncComplianceClient:
        # Loading the CA certificates takes tens of milliseconds: keep it off the event loop.
        context = await asyncio.to_thread(tls_context, self._ca_file) if self._ca_file else False
        seconds = self.settings.timeout
        self._session = aiohttp.ClientSession(
            connector=_Connector(ssl=context),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=["Content-Type"],  # for a request without a body
            read_bufsize=CHUNK_BYTES,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )
        self._session._retry_connection = False  # noqa: SLF001 - only Exchange decides about retries
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    async def _send(self, exchange: Exchange[Any], request: HttpRequest) -> HttpResponse | Failure:
        if self._session is None:
            raise RuntimeError(
                "Use AsyncComplianceClient as 'async with AsyncComplianceClient(...) as client'."
            )
        call, seconds = exchange.call, self.settings.response_timeout
        body, proxy = request.body, self._proxy(call)
        stall = _StallTimeout(self.settings.timeout, seconds)
        _stall.set(stall)
        try:
            async with stall.limit:
                response = await self._session.request(
                    request.method,
                    URL(request.url, encoded=True),
                    headers=request.headers,
                    data=body if body is None or fits_in_chunk(body) else _upload(body, stall),
                    proxy=proxy,
                    allow_redirects=False,
                )
        except _FAILED as error:
            return _failure(error, is_sent=stall.is_sent)
        headers = {name.lower(): value for name, value in response.headers.items()}
        is_ok, content, stream = 200 <= response.status < 300, bytearray(), None
        try:
            decoder = BodyDecoder(headers, call.limit if is_ok else ERROR_BODY_BYTES)
            if is_ok and call.stream:
                stream = _stream_body(response, decoder, seconds, exchange)
            else:
                async with response:
                    if call.method != "HEAD":
                        await _read_body(response, decoder, seconds, content)
        except _FAILED as error:
            response.close()
            if is_ok:
                return _failure(error)
        return HttpResponse(
            response.status,
            headers,
            bytes(content),
            request.url,
            proxy_host(proxy),
            stream,
            response.release,
        )


class _StallTimeout:
    """Ends a stalled request; aiohttp has no timeout for a body that the server does not read.

    :param timeout: seconds to send a chunk of the body
    :param response_timeout: seconds to connect, to read a chunk from its source, and to get the response
    """

    def __init__(self, timeout: float, response_timeout: float) -> None:
        self.limit = asyncio.timeout(None)
        self.timeout, self.response_timeout = timeout, response_timeout
        self.is_sent = False
        self.is_connected = False  # by a new connection

    def restart(self, seconds: float | None) -> None:
        """Restart the clock with this many seconds."""
        with suppress(RuntimeError):  # the response came before the whole body was sent
            self.limit.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)


_stall: ContextVar[_StallTimeout] = ContextVar("stall")  # for the request that this task sends


class _Connector(aiohttp.TCPConnector):
    """Starts the clock of a request once it has left the queue of the connection pool.

    Not by tracing, which calls a dozen signals for each request. And uses no connection again on which an
    answer arrived without a request.
    """

    async def connect(self, *args: Any, **kwargs: Any) -> Any:
        stall = _stall.get()
        while True:
            connection = await super().connect(*args, **kwargs)
            if stall.is_connected or not _has_unread_data(connection):
                break
            connection.close()  # what came unasked would be taken for the answer to this request
        stall.is_sent = True  # the headers are sent next
        stall.restart(stall.response_timeout)
        return connection

    async def _create_connection(self, *args: Any, **kwargs: Any) -> Any:
        stall = _stall.get()
        stall.is_connected = True
        stall.restart(stall.response_timeout)
        return await super()._create_connection(*args, **kwargs)


def _has_unread_data(connection: aiohttp.connector.Connection) -> bool:
    """Return whether an idle connection has unread data or was closed."""
    if connection.protocol is None or connection.transport is None or connection.protocol.should_close:
        return True
    poll = select.poll()
    poll.register(connection.transport.get_extra_info("socket"), select.POLLIN)
    return bool(poll.poll(0))


async def _upload(body: bytes | Body, stall: _StallTimeout) -> AsyncIterator[bytes]:
    """Pass on the chunks of a body, with a timeout to read and to send each."""
    for chunk in iter_chunks(body):
        if isinstance(chunk, Future):
            stall.restart(None)
            chunk = await _wait_for_read(chunk, stall.response_timeout)
        stall.restart(stall.timeout)
        yield chunk
    stall.restart(stall.response_timeout)


async def _wait_for_read(future: Future[T], seconds: float) -> T:
    await _wait(future, seconds)
    if not future.done():
        raise read_timeout_error(seconds)
    return future.result()


async def _wait(future: Future[Any], seconds: float) -> None:
    waiting = asyncio.wrap_future(future)
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        if not waiting.cancel():
            waiting.exception()  # retrieved, so that asyncio does not log it


async def _read_body(
    response: aiohttp.ClientResponse, decoder: BodyDecoder, seconds: float, content: bytearray
) -> None:
    """Read a whole body, with a timeout; after an error, `content` has the part that came before it."""
    body = response.content
    if body.is_eof():  # it arrived with its headers, so do not wait
        for piece in decoder.feed(body.read_nowait()):
            content += piece
    else:
        async with asyncio.timeout(seconds):
            async for data in body.iter_chunked(CHUNK_BYTES):
                for piece in decoder.feed(data):
                    content += piece
    decoder.finish()


async def _stream_body(
    response: aiohttp.ClientResponse, decoder: BodyDecoder, seconds: float, exchange: Exchange[Any]
) -> AsyncIterator[bytes]:
    """Read a body in large chunks, with a timeout for each."""
    body = response.content
    try:
        while not body.at_eof():
            data = bytearray()
            if body.is_eof():
                data += body.read_nowait(CHUNK_BYTES)
            else:
                async with asyncio.timeout(seconds):
                    while len(data) < CHUNK_BYTES and (more := await body.read(CHUNK_BYTES - len(data))):
                        data += more
            for piece in decoder.feed(bytes(data)):
                yield piece
        decoder.finish()
    except _FAILED as error:
        raise exchange.stream_error(_failure(error)) from None


def _failure(error: BaseException, *, is_sent: bool = True) -> Failure:
    not_connected = _NOT_CONNECTED if is_sent else (*_NOT_CONNECTED, TimeoutError)
    return classify_error(error, not_connected, (TimeoutError,))
