"""The client on aiohttp. `Exchange` makes every decision; this driver only sends and waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import wraps
from typing import IO, Any, Concatenate, ParamSpec, TypeVar, cast

import aiohttp
from yarl import URL

from airflow_provider.client import endpoints
from airflow_provider.client.base import BaseClient
from airflow_provider.client.exchange import Done, Exchange
from airflow_provider.client.http.bodies import BodyDecoder, BodyError
from airflow_provider.client.http.network import classify_error, proxy_host, tls_context
from airflow_provider.client.http.uploads import (
    CHUNK_BYTES,
    CLOSE_SECONDS,
    FileSource,
    MultipartUpload,
    fits_in_chunk,
    iter_chunks,
    read_timeout_error,
    run_in_daemon_thread,
    write_all,
)
from airflow_provider.client.models import Assessment, ContentJob
from airflow_provider.client.settings import Endpoints
from airflow_provider.client.tokens import AccessToken
from airflow_provider.client.wire import ERROR_BODY_BYTES, Body, Call, Failure, HttpResponse
from airflow_provider.exceptions import ComplianceError

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


def _configured(
    endpoint: Callable[Concatenate[Endpoints, P], Call[T]],
) -> Callable[Concatenate[AsyncComplianceClient, P], Coroutine[Any, Any, T]]:
    """Turn an endpoint whose path is a setting into a method."""

    @wraps(endpoint)
    async def method(self: AsyncComplianceClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(endpoint(self.settings.endpoints, *args, **kwargs))

    return method


class AsyncComplianceClient(BaseClient):
    """Client of the service on aiohttp; an async context manager, bound to one event loop of one process.

    :param settings: URLs, credentials, timeouts and retries
    :param shared: token, throttle pause and batch limit; by default shared by all clients with equal settings
    :param translate: maps an assessment record to one with `id`, `status` and `error`
    """

    _session: aiohttp.ClientSession | None

    def _new_session(self) -> None:
        """Leave it to `__aenter__`: a session belongs to an event loop."""

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

    async def submit_assessment(self, payload: Any) -> Assessment:
        """Submit an assessment; the payload is sent unchanged."""
        paths = self.settings.endpoints
        return await self.run(endpoints.submit_assessment(paths, payload, self._translate))

    async def get_assessment(self, assessment_id: str | int) -> Assessment:
        """Get the status of an assessment."""
        paths = self.settings.endpoints
        return await self.run(endpoints.get_assessment(paths, assessment_id, self._translate))

    async def submit_file(self, file: FileSource, file_name: str | None = None) -> ContentJob:
        """Submit a document; it is streamed, and read in a thread."""
        opening = run_in_daemon_thread(MultipartUpload, file, file_name)
        upload = await _wait_for_read(opening, self.settings.response_timeout)
        try:
            return await self.run(endpoints.submit_file(upload))
        finally:
            # Do not wait for a hanging read: it closes the file when it returns.
            closing = asyncio.wrap_future(run_in_daemon_thread(upload.close))
            await asyncio.wait([closing], timeout=CLOSE_SECONDS)

    async def get_statuses(self, uuids: Iterable[str]) -> dict[str, ContentJob]:
        """Get the status of any number of jobs; unknown ones are absent from the result."""
        return await self.run_flow(endpoints.get_statuses(uuids, self._shared.batch))

    async def download_content(self, uuid: str, target: IO[bytes]) -> int:
        """Write the extracted text as UTF-8 to an open binary file, in a thread; return the byte count."""
        async with self.stream_content(uuid) as pieces:
            return sum([await asyncio.to_thread(write_all, target, piece) async for piece in pieces])

    @asynccontextmanager
    async def stream_content(self, uuid: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the extracted text as UTF-8; a truncated one is an error."""

        async def utf8() -> AsyncIterator[bytes]:
            async for piece in pieces:
                yield text.feed(piece)
            yield text.finish()

        async with self._open(endpoints.stream_content(uuid)) as (text, pieces):
            yield utf8()

    async def run(self, call: Call[T]) -> T:
        """Send one call and return its result."""
        async with self._open(call) as result:
            return result

    async def run_flow(self, flow: endpoints.Flow[T]) -> T:
        """Run an operation of several calls."""
        resume: Callable[[Any], Call[Any]] = flow.send
        result: Any = None
        while True:
            try:
                call = resume(result)
            except StopIteration as end:
                return cast("T", end.value)
            try:
                resume, result = flow.send, await self.run(call)
            except ComplianceError as error:
                resume, result = flow.throw, error

    async def __aenter__(self) -> AsyncComplianceClient:
        # Loading the CA certificates takes tens of milliseconds: keep it off the event loop.
        context = await asyncio.to_thread(tls_context, self._ca_file) if self._ca_file else False
        seconds = self.settings.timeout
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=CHUNK_BYTES,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            trace_configs=[_stall_tracing()],
        )
        self._session._retry_connection = False  # noqa: SLF001 - only Exchange decides about retries
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    @asynccontextmanager
    async def _open(self, call: Call[T]) -> AsyncIterator[T]:
        """Send a call, with retries; yield its result, whose body is read inside this block if streamed."""
        exchange = Exchange(call, self.settings, self._shared.throttle_pause(call), self._shared.has_worked)
        while True:
            await asyncio.sleep(exchange.delay())
            token = await self._token(exchange.refused_token) if call.authorized else None
            async with AsyncExitStack() as stack:
                match exchange.evaluate(await self._send(exchange, token, stack)):
                    case Done(result):
                        self._shared.has_worked |= call.authorized
                        yield result
                        return

    async def _token(self, refused: AccessToken | None) -> AccessToken:
        provider = self._shared.tokens
        while True:
            acquired = provider.acquire(refused)
            if isinstance(acquired, AccessToken):
                return acquired
            if acquired.is_leader:
                with provider.refreshing(acquired):
                    return await self.run_flow(provider.cache.renew())
            try:
                if token := await asyncio.wait_for(
                    asyncio.wrap_future(acquired.future), self._shared.refresh_timeout
                ):
                    return token
            except TimeoutError:
                provider.abandon(acquired)

    async def _send(
        self, exchange: Exchange[Any], token: AccessToken | None, stack: AsyncExitStack
    ) -> HttpResponse | Failure:
        if self._session is None:
            raise RuntimeError(
                "Use AsyncComplianceClient as 'async with AsyncComplianceClient(...) as client'."
            )
        call, request, seconds = exchange.call, exchange.next_request(token), self.settings.response_timeout
        body, proxy = request.body, self._proxy(call)
        stall = _StallTimeout(self.settings.timeout, seconds)
        try:
            async with stall.limit:
                response = await stack.enter_async_context(
                    self._session.request(
                        request.method,
                        URL(request.url, encoded=True),
                        headers=request.headers,
                        data=body if body is None or fits_in_chunk(body) else _upload(body, stall),
                        proxy=proxy,
                        allow_redirects=False,
                        trace_request_ctx=stall,
                    )
                )
        except _FAILED as error:
            return _failure(error, is_sent=stall.is_sent)
        headers = {name.lower(): value for name, value in response.headers.items()}
        is_ok, content, stream = 200 <= response.status < 300, bytearray(), None
        try:
            decoder = BodyDecoder(headers, call.limit if is_ok else ERROR_BODY_BYTES)
            if is_ok and call.stream:
                stream = _map_errors(_read_body(response, decoder, seconds), exchange)
            elif call.method != "HEAD":
                async with asyncio.timeout(seconds):
                    async for data in response.content.iter_chunked(CHUNK_BYTES):
                        for piece in decoder.feed(data):
                            content += piece
                decoder.finish()
        except _FAILED as error:
            response.close()
            if is_ok:
                return _failure(error)
        return HttpResponse(response.status, headers, bytes(content), request.url, proxy_host(proxy), stream)


class _StallTimeout:
    """Ends a stalled request; aiohttp has no timeout for a body that the server does not read.

    :param timeout: seconds to send a chunk of the body
    :param response_timeout: seconds to connect, to read a chunk from its source, and to get the response
    """

    def __init__(self, timeout: float, response_timeout: float) -> None:
        self.limit = asyncio.timeout(None)
        self.timeout, self.response_timeout = timeout, response_timeout
        self.is_sent = False

    def restart(self, seconds: float | None) -> None:
        """Restart the clock with this many seconds."""
        with suppress(RuntimeError):  # the response came before the whole body was sent
            self.limit.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)


def _stall_tracing() -> aiohttp.TraceConfig:
    """Start the clock of a request once it has left the queue of the connection pool."""

    async def on_connect(_: Any, context: Any, __: Any) -> None:
        context.trace_request_ctx.restart(context.trace_request_ctx.response_timeout)

    async def on_sent(_: Any, context: Any, __: Any) -> None:
        context.trace_request_ctx.is_sent = True
        context.trace_request_ctx.restart(context.trace_request_ctx.response_timeout)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_start.append(on_connect)
    trace.on_request_headers_sent.append(on_sent)
    return trace


async def _upload(body: bytes | Body, stall: _StallTimeout) -> AsyncIterator[bytes]:
    """Read a body in threads, with a timeout to read and to send each chunk."""
    chunks = iter_chunks(body)
    while True:
        stall.restart(None)
        reading = run_in_daemon_thread(next, chunks, None)
        if (chunk := await _wait_for_read(reading, stall.response_timeout)) is None:
            break
        stall.restart(stall.timeout)
        yield chunk
    stall.restart(stall.response_timeout)


async def _wait_for_read(future: Future[T], seconds: float) -> T:
    waiting = asyncio.wrap_future(future)
    await asyncio.wait([waiting], timeout=seconds)
    if not waiting.done():
        raise read_timeout_error(seconds)
    return waiting.result()


async def _read_body(
    response: aiohttp.ClientResponse, decoder: BodyDecoder, seconds: float
) -> AsyncIterator[bytes]:
    """Read a body in large chunks, with a timeout for each."""
    while True:
        data = bytearray()
        async with asyncio.timeout(seconds):
            while len(data) < CHUNK_BYTES and (more := await response.content.read(CHUNK_BYTES - len(data))):
                data += more
        if not data:
            break
        for piece in decoder.feed(bytes(data)):
            yield piece
    decoder.finish()


async def _map_errors(pieces: AsyncIterator[bytes], exchange: Exchange[Any]) -> AsyncIterator[bytes]:
    try:
        async for piece in pieces:
            yield piece
    except _FAILED as error:
        raise exchange.stream_error(_failure(error)) from None


def _failure(error: BaseException, *, is_sent: bool = True) -> Failure:
    not_connected = _NOT_CONNECTED if is_sent else (*_NOT_CONNECTED, TimeoutError)
    return classify_error(error, not_connected, (TimeoutError,))
