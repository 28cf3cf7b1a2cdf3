"""The pages: who may see them, and how they are sent. Imported in the API server only."""

from __future__ import annotations

import asyncio
import hashlib
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from html import escape
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from airflow_provider.exceptions import ComplianceError
from airflow_provider.nights.reports.documents import MAX_DOCUMENTS, DocumentTables
from airflow_provider.nights.reports.page import read_decision, render
from airflow_provider.pages import nights
from airflow_provider.provider_info import PAGES_PREFIX
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.names import digest

T = TypeVar("T")

THREADS = 8  # reads of all users at the same time: the API server's own threads stay free
TIMEOUT_SECONDS = 30.0  # for one read
CHUNK_BYTES = 1 << 18
MAX_REPORT_BYTES = 256 << 20
MAX_TEXT_BYTES = 16 << 20
MAX_QUERY_CHARS = 2000
ERRORS: tuple[int | type[Exception], ...] = (401, 403, 404, 405, 502, 504, RequestValidationError, Exception)
MAX_MAP_INDEX = 2**31 - 1  # for Airflow's database
HEADERS = {
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# A report may run its own script, but in an origin of its own: it reaches neither Airflow nor a network.
REPORT_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": "sandbox allow-scripts allow-popups; default-src 'none'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'self'",
}
PAGE_HEADERS = {**HEADERS, "X-Frame-Options": "SAMEORIGIN"}

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="compliance-pages")


async def run_blocking(call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a call in a thread of the pages, for a limited time."""
    running = asyncio.get_running_loop().run_in_executor(_threads, lambda: call(*arguments, **named))
    try:
        return await asyncio.wait_for(running, TIMEOUT_SECONDS)
    except TimeoutError:
        raise HTTPException(504, "The storage did not answer in time. Try again later.") from None
    except ComplianceError as error:
        raise HTTPException(502, str(error)) from None


async def readable_dags(user: GetUserDep) -> set[str]:
    """Return the DAGs that a user may read."""
    return await run_blocking(get_auth_manager().get_authorized_dag_ids, user=user)


DagIds = Annotated[set[str], Depends(readable_dags)]


async def find_root(root_id: str, dag_ids: DagIds) -> str:
    """Return the root with an id, if a readable DAG closed nights there."""
    roots = await run_blocking(nights.find_roots, dag_ids)
    if root_id not in roots:
        raise HTTPException(404, "Page not found, or you may not read the DAG that wrote it.")
    return roots[root_id]


Root = Annotated[str, Depends(find_root)]


async def find_dag(dag_id: str, dag_ids: DagIds) -> str:
    """Return the DAG of a page, if the user may read it."""
    if dag_id not in dag_ids:
        raise HTTPException(403, "You may not read this DAG.")
    return dag_id


DagId = Annotated[str, Depends(find_dag)]


async def stream(location: Location, most: int) -> AsyncIterator[bytes]:
    """Yield an object in parts, at most some bytes; the first part says whether it can be read."""

    def open_object() -> Any:
        with storage_errors(location, "read"):
            return location.fs.open(location.path, "rb")

    file, sent = await run_blocking(open_object), 0
    try:
        yield b""
        while sent < most and (chunk := await run_blocking(file.read, CHUNK_BYTES)):
            sent += len(chunk)
            yield chunk
    finally:
        await run_blocking(file.close)


def send(parts: AsyncIterator[bytes]) -> Response:
    """Stream a page in an origin of its own."""
    return StreamingResponse(parts, media_type="text/html; charset=utf-8", headers=REPORT_HEADERS)


async def send_report(location: Location | None, navigation: str = "") -> Response:
    """Stream a report.

    :param navigation: HTML to show above it
    """
    if location is None:
        raise HTTPException(404, "Report not found, or you may not read the DAG that wrote it.")
    parts = stream(location, MAX_REPORT_BYTES)
    await anext(parts)

    async def page() -> AsyncIterator[bytes]:
        left = navigation
        async for part in parts:
            found, body, rest = part.partition(b"<body>") if left else (part, b"", b"")
            yield found + body + (left.encode() if body else b"") + rest
            left = "" if body else left

    return send(page())


async def send_text(location: Location | None, page: str, sha256: object) -> Response:
    """Stream a text, escaped, in the middle of its page, and say if it differs from the recorded one."""
    if location is None:
        raise HTTPException(404, "This text is not below the root of the nights, or no night has it.")
    parts = stream(location, MAX_TEXT_BYTES)
    await anext(parts)

    async def whole() -> AsyncIterator[bytes]:
        before, _, after = page.rpartition("@TEXT@")
        yield before.encode()
        decoder, digest, sent = getincrementaldecoder("utf-8")("replace"), hashlib.sha256(), 0
        async for part in parts:
            digest.update(part)
            sent += len(part)
            yield escape(decoder.decode(part)).encode()
        note = "" if digest.hexdigest() == sha256 else "This text is not as it was recorded."
        note = f"Only the first {sent:,} bytes are shown." if sent >= MAX_TEXT_BYTES else note
        yield (f"\n\n<b class='bad'>{note}</b>{after}" if note else after).encode()

    return send(whole())


@cache
def make_app() -> FastAPI:
    """Return the app, which Airflow mounts."""
    app = FastAPI(title="Compliance", docs_url=None, redoc_url=None, openapi_url=None)

    def make(template: str, request: Request, **context: Any) -> str:
        base = str(request.scope.get("root_path", ""))
        return render(template, base=base, airflow=base.removesuffix(PAGES_PREFIX), quote=quote, **context)

    def page(template: str, request: Request, status: int = 200, **context: Any) -> HTMLResponse:
        return HTMLResponse(make(template, request, **context), status, headers=PAGE_HEADERS)

    def navigate(
        request: Request,
        root_id: str,
        dag_id: object,
        run_id: object,
        around: Mapping[str, int] | None = None,
    ) -> str:
        """Return the links above a report."""
        base = str(request.scope.get("root_path", ""))
        dag, run_of_dag = (quote(str(name), safe="") for name in (dag_id, run_id))
        run = f"{base.removesuffix(PAGES_PREFIX)}/dags/{dag}/runs/{run_of_dag}"
        links = {label: f"{base}/nights/{root_id}/{number}" for label, number in (around or {}).items()}
        links |= {"Forms": f"{run}/required_actions?response_received=false", "Run": run}
        links["Find a document"] = f"{base}/documents/{root_id}" if root_id else ""
        return make("nav.html", request, links=links)

    def to_document(request: Request, root_id: str, source: str, *, is_text: bool = False) -> Response:
        base, query = request.scope.get("root_path", ""), f"source={quote(source, safe='')}"
        return RedirectResponse(f"{base}/{'text' if is_text else 'document'}/{root_id}?{query}")

    async def send_run(
        request: Request, dag_id: str, run_id: str, source: str, *, is_text: bool = False, **given: Any
    ) -> Response:
        """Send the newest report of a run, or the given one, or lead to one of its documents."""
        root, newest = await run_blocking(nights.find_run, dag_id, run_id)
        root_id, report = digest(root) if root else "", given.get("report", newest)
        if source and root:
            return to_document(request, root_id, source, is_text=is_text)
        if root and report and (number := await run_blocking(nights.find_number, root, report)):
            return RedirectResponse(f"{request.scope.get('root_path', '')}/nights/{root_id}/{number}")
        return await send_report(report, navigate(request, root_id, dag_id, run_id))

    @app.get("/")
    async def show_nights(request: Request, dag_ids: DagIds) -> Response:
        roots = await run_blocking(nights.find_roots, dag_ids)

        async def read_chain(root_id: str, root: str) -> dict[str, Any]:
            chain = {"id": root_id, "root": root, "nights": [], "problem": ""}
            try:
                return chain | {"nights": await run_blocking(nights.list_nights, root, dag_ids)}
            except HTTPException as error:  # a store that fails does not hide the others
                return chain | {"problem": str(error.detail)}

        found = await asyncio.gather(*(read_chain(*item) for item in roots.items()))
        chains = [chain for chain in found if chain["nights"] or chain["problem"]]
        open_forms = await run_blocking(nights.count_open_forms, dag_ids)
        decided: dict[str, int] = {}
        for chain in chains:
            with suppress(HTTPException):  # the records have their number when the nights were closed
                decided |= await run_blocking(nights.count_decisions, chain["root"], dag_ids, open_forms)
        return page("nights.html", request, chains=chains, open_forms=open_forms, decided=decided)

    @app.get("/reports/{dag_id}/{run_id}/{task_id}/{map_index}")
    async def show_report(
        request: Request, dag_id: DagId, run_id: str, task_id: str, map_index: int, source: str = ""
    ) -> Response:
        if not -1 <= map_index <= MAX_MAP_INDEX:
            raise HTTPException(404, "There is no such task instance.")
        task_instance = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
        report = await run_blocking(nights.find_report, **task_instance)
        return await send_run(request, dag_id, run_id, source, report=report)

    @app.get("/runs/{dag_id}/{run_id}")
    async def show_run(
        request: Request, dag_id: DagId, run_id: str, source: str = "", show: str = ""
    ) -> Response:
        """Show the report of a night, one of its documents, or its text, for links in review forms."""
        return await send_run(request, dag_id, run_id, source, is_text=show == "text")

    @app.get("/nights/{root_id}/{number}")
    async def show_night(
        request: Request, root_id: str, root: Root, number: int, dag_ids: DagIds, source: str = ""
    ) -> Response:
        if source:
            return to_document(request, root_id, source)
        report, entry, around = await run_blocking(nights.find_night_report, root, number, dag_ids)
        record = entry.record if entry else {}
        navigation = navigate(request, root_id, record.get("dag_id"), record.get("run_id"), around)
        return await send_report(report, navigation)

    @app.get("/text/{root_id}")
    async def show_text(
        request: Request, root_id: str, root: Root, dag_ids: DagIds, source: str, sha256: str = ""
    ) -> Response:
        location, row = await run_blocking(nights.find_text, root, source, sha256, dag_ids)
        return await send_text(
            location, make("text.html", request, root_id=root_id, source=source, row=row), row.get("sha256")
        )

    @app.get("/documents/{root_id}")
    async def show_documents(
        request: Request, root_id: str, root: Root, dag_ids: DagIds, text: str = ""
    ) -> Response:
        text = text[:MAX_QUERY_CHARS].strip()
        found = await run_blocking(
            lambda: DocumentTables(Location(root), dag_ids, TIMEOUT_SECONDS).search(text)
        )
        return page("documents.html", request, root_id=root_id, text=text, sources=found, most=MAX_DOCUMENTS)

    @app.get("/document/{root_id}")
    async def show_document(
        request: Request, root_id: str, root: Root, source: str, dag_ids: DagIds
    ) -> Response:
        found = await run_blocking(
            lambda: DocumentTables(Location(root), dag_ids, TIMEOUT_SECONDS).read(source)
        )
        if not found:
            raise HTTPException(404, "No night has this document.")
        verdicts: dict[tuple[str, str], list[tuple[str, Any]]] = {}
        for night in found:
            for criterion, row in night.findings.items():
                verdicts.setdefault(criterion, []).append((night.date, row))
        decisions = [read_decision(row) for night in found for row in night.decisions]
        criteria = sorted(verdicts.items())
        return page(
            "document.html", request, root_id=root_id, source=source, nights=found, criteria=criteria,
            decisions=decisions,
        )  # fmt: skip

    async def show_error(request: Request, error: Exception) -> Response:
        code, problem = getattr(error, "status_code", 500), str(getattr(error, "detail", ""))
        if isinstance(error, RequestValidationError):
            code, problem = 404, "Page not found: a number in its address is not valid."
        problem = problem or "The page could not be rendered. See the log of the API server."
        return page("error.html", request, code, problem=problem, code=code)

    for kind in ERRORS:
        app.add_exception_handler(kind, show_error)
    return app
