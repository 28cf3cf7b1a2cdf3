"""The client on aiohttp. It has no opinions: `Exchange` decides, this sends and waits."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial, wraps
from typing import IO, Any, Concatenate, ParamSpec, TypeVar, cast

import aiohttp
from yarl import URL

from airflow_provider.client import endpoints, plans
from airflow_provider.client.answers import Translate
from airflow_provider.client.documents import Document, FileSource
from airflow_provider.client.exchange import Answer, Exchange
from airflow_provider.client.files import CHUNK, write_all
from airflow_provider.client.models import Assessment, ContentJob
from airflow_provider.client.network import ca_file, failure, proxy_for, tls_context
from airflow_provider.client.settings import Endpoints, Settings
from airflow_provider.client.sharing import Shared, bind_to_process, leave_to_parent, shared_by
from airflow_provider.client.tokens import AccessToken
from airflow_provider.client.wire import (
    ERROR_BODY,
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
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
)
_TIMED_OUT = (TimeoutError,)
_FAILED = (aiohttp.ClientError, OSError, TimeoutError)


def _operation(
    endpoint: Callable[P, Call[T]],
) -> Callable[Concatenate[AsyncComplianceClient, P], Coroutine[Any, Any, T]]:
    """Make a method of an endpoint."""

    @wraps(endpoint)
    async def method(self: AsyncComplianceClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(endpoint(*args, **kwargs))

    return method


def _configured(
    endpoint: Callable[Concatenate[Endpoints, P], Call[T]],
) -> Callable[Concatenate[AsyncComplianceClient, P], Coroutine[Any, Any, T]]:
    """Make a method of an endpoint whose path is a setting."""

    @wraps(endpoint)
    async def method(self: AsyncComplianceClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(endpoint(self.settings.endpoints, *args, **kwargs))

    return method


class AsyncComplianceClient:
    """Talks to the service with aiohttp; an async context manager, for one event loop of one process.

    :param settings: addresses, credentials and habits
    :param shared: token, pause and batch limit; by default shared by all clients with equal settings
    :param translate: turns a record of an assessment into one with `id`, `status` and `error`
    """

    def __init__(
        self, settings: Settings, *, shared: Shared | None = None, translate: Translate = dict
    ) -> None:
        self.settings = settings
        self._shared = shared or shared_by(settings)
        self._translate = translate
        self._session: aiohttp.ClientSession | None = None
        self._proxy_for = cache(proxy_for)  # looks through the whole environment
        bind_to_process(self)

    def after_fork(self) -> None:
        """Begin anew in a forked child, which has to enter it again, in an event loop of its own."""
        leave_to_parent(self._session)
        self._session = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has connections of its own, once it is entered.
        return partial(type(self), self.settings, shared=self._shared, translate=self._translate), ()

    @property
    def throttlings(self) -> int:
        """How often the service has asked this process to send less."""
        return self._shared.throttlings

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
        """Submit an assessment; the payload goes through as it is."""
        paths = self.settings.endpoints
        return await self.run(endpoints.submit_assessment(paths, payload, self._translate))

    async def get_assessment(self, assessment_id: str | int) -> Assessment:
        """Ask for the state of an assessment."""
        paths = self.settings.endpoints
        return await self.run(endpoints.get_assessment(paths, assessment_id, self._translate))

    async def submit_file(self, file: FileSource, file_name: str | None = None) -> ContentJob:
        """Submit a document, streamed from where it is; it is read in a thread."""
        document = await asyncio.to_thread(Document, file, file_name)
        try:
            return await self.run(endpoints.submit_file(document))
        finally:
            document.close()

    async def get_statuses(self, uuids: Iterable[str]) -> dict[str, ContentJob]:
        """Ask for any number of jobs; one that the service does not know is absent in the result."""
        return await self.follow(plans.get_statuses(uuids, self._shared.batch))

    async def download_content(self, uuid: str, target: IO[bytes]) -> int:
        """Write the extracted text as UTF-8 to an open binary file, in a thread; return the byte count."""
        async with self.stream_content(uuid) as pieces:
            return sum([await asyncio.to_thread(write_all, target, piece) async for piece in pieces])

    @asynccontextmanager
    async def stream_content(self, uuid: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Get the extracted text piece by piece, as UTF-8; one that breaks off is an error."""

        async def utf8() -> AsyncIterator[bytes]:
            async for piece in pieces:
                yield text.feed(piece)
            yield text.finish()

        async with self._open(endpoints.stream_content(uuid)) as (text, pieces):
            yield utf8()

    async def run(self, call: Call[T]) -> T:
        """Carry out one call."""
        async with self._open(call) as (value, _):
            return value

    async def follow(self, plan: plans.Plan[T]) -> T:
        """Carry out an operation of several calls."""
        step: Callable[[Any], Call[Any]] = plan.send
        result: Any = None
        while True:
            try:
                call = step(result)
            except StopIteration as end:
                return cast("T", end.value)
            try:
                step, result = plan.send, await self.run(call)
            except ComplianceError as error:
                step, result = plan.throw, error

    async def __aenter__(self) -> AsyncComplianceClient:
        # Reading the trusted authorities takes tens of milliseconds: not on the event loop.
        context = await asyncio.to_thread(_tls_context, self.settings.verify)
        seconds = self.settings.timeout
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=CHUNK,
        )
        self._session._retry_connection = False  # noqa: SLF001 - it repeats behind the back of Exchange
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    @asynccontextmanager
    async def _open(self, call: Call[T]) -> AsyncIterator[tuple[T, AsyncIterator[bytes]]]:
        """Send a call until it is answered; give its value and, where streamed, the pieces of its body."""
        exchange = Exchange(call, self.settings, self._shared.pause_of(call))
        while True:
            await asyncio.sleep(exchange.delay())
            token = await self._token(exchange.refused_token) if call.authorized else None
            async with AsyncExitStack() as stack:
                outcome, response = await self._send(exchange.next_request(token), call, stack)
                match exchange.judge(outcome):
                    case Answer(value):
                        yield value, _pieces(response, exchange)
                        return

    async def _token(self, refused: AccessToken | None) -> AccessToken:
        desk = self._shared.tokens
        while True:
            asked = desk.ask(refused)
            if isinstance(asked, AccessToken):
                return asked
            if asked.leads:
                with desk.leading(asked):
                    return await self.follow(desk.cache.renewal())
            try:
                if token := await asyncio.wait_for(asyncio.wrap_future(asked.landed), self._shared.patience):
                    return token
            except TimeoutError:
                desk.give_up(asked)

    async def _send(
        self, request: HttpRequest, call: Call[Any], stack: AsyncExitStack
    ) -> tuple[HttpResponse | Failure, aiohttp.ClientResponse | None]:
        if self._session is None:
            raise RuntimeError(
                "Use AsyncComplianceClient as 'async with AsyncComplianceClient(...) as client'."
            )
        body = request.body
        url = URL(request.url, encoded=True)
        try:
            response = await stack.enter_async_context(
                self._session.request(
                    request.method,
                    url,
                    headers=request.headers,
                    data=body if body is None or isinstance(body, bytes) else _read_in_thread(body),
                    proxy=self._proxy_for(str(url.origin())),
                    allow_redirects=False,
                )
            )
        except _FAILED as error:
            return failure(error, _NOT_CONNECTED, _TIMED_OUT), None
        good, content = response.status < 300, bytearray()
        try:
            if not (good and call.streamed):
                async for piece in response.content.iter_chunked(CHUNK):
                    content += piece
                    if not good and len(content) > ERROR_BODY:
                        response.close()
                        break
        except _FAILED as error:
            if good:
                return failure(error, _NOT_CONNECTED, _TIMED_OUT), None
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpResponse(response.status, headers, bytes(content), request.url), response


async def _read_in_thread(body: Body) -> AsyncIterator[bytes]:
    chunks = body.chunks()
    while (piece := await asyncio.to_thread(next, chunks, None)) is not None:
        yield piece


async def _pieces(response: aiohttp.ClientResponse | None, exchange: Exchange[Any]) -> AsyncIterator[bytes]:
    try:
        if response is not None:
            async for piece in response.content.iter_chunked(CHUNK):
                yield piece
    except _FAILED as error:
        raise exchange.broken(failure(error, _NOT_CONNECTED, _TIMED_OUT)) from None


def _tls_context(verify: bool | str) -> ssl.SSLContext | bool:
    path = ca_file(verify)
    return tls_context(path) if path else False
