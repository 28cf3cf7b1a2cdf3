"""The pages: who may see them, and how they are sent. Imported in the API server only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
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

T = TypeVar("T")

THREADS = 8  # reads of all users at the same time: the API server's own threads stay free
TIMEOUT_SECONDS = 30.0  # of one read
CHUNK_BYTES = 1 << 18
MAX_REPORT_BYTES = 256 << 20
MAX_QUERY_CHARS = 2000
ERRORS: tuple[int | type[Exception], ...] = (401, 403, 404, 405, 502, 504, RequestValidationError, Exception)
MAX_MAP_INDEX = 2**31 - 1  # of Airflow's database
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
    """Return the root with an id, if a readable DAG has closed nights there."""
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


async def send_report(location: Location | None) -> Response:
    """Stream a report."""
    if location is None:
        raise HTTPException(404, "Report not found, or you may not read the DAG that wrote it.")

    def open_report() -> Any:
        with storage_errors(location, "read"):
            return location.fs.open(location.path, "rb")

    file = await run_blocking(open_report)

    async def chunks() -> AsyncIterator[bytes]:
        sent = 0
        try:
            while sent < MAX_REPORT_BYTES and (chunk := await run_blocking(file.read, CHUNK_BYTES)):
                sent += len(chunk)
                yield chunk
        finally:
            await run_blocking(file.close)

    return StreamingResponse(chunks(), media_type="text/html; charset=utf-8", headers=REPORT_HEADERS)


@cache
def make_app() -> FastAPI:
    """Return the app, which Airflow mounts."""
    app = FastAPI(title="Compliance", docs_url=None, redoc_url=None, openapi_url=None)

    def page(template: str, request: Request, status: int = 200, **context: Any) -> HTMLResponse:
        base = str(request.scope.get("root_path", ""))
        html = render(template, base=base, airflow=base.removesuffix(PAGES_PREFIX), quote=quote, **context)
        return HTMLResponse(html, status, headers=PAGE_HEADERS)

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
        return page("nights.html", request, chains=chains, open_forms=open_forms)

    @app.get("/reports/{dag_id}/{run_id}/{task_id}/{map_index}")
    async def show_report(dag_id: DagId, run_id: str, task_id: str, map_index: int) -> Response:
        if not -1 <= map_index <= MAX_MAP_INDEX:
            raise HTTPException(404, "There is no such task instance.")
        task_instance = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
        return await send_report(await run_blocking(nights.find_report, **task_instance))

    @app.get("/runs/{dag_id}/{run_id}")
    async def show_run(request: Request, dag_id: DagId, run_id: str, source: str = "") -> Response:
        """Show the report of a night, or one of its documents: what a review's form links to."""
        root_id, report = await run_blocking(nights.find_run, dag_id, run_id)
        if source and root_id:
            base = str(request.scope.get("root_path", ""))
            return RedirectResponse(f"{base}/document/{root_id}?source={quote(source, safe='')}")
        return await send_report(report)

    @app.get("/nights/{root_id}/{number}")
    async def show_night(root: Root, number: int, dag_ids: DagIds) -> Response:
        return await send_report(await run_blocking(nights.find_night_report, root, number, dag_ids))

    @app.get("/documents/{root_id}")
    async def show_documents(
        request: Request, root_id: str, root: Root, dag_ids: DagIds, text: str = ""
    ) -> Response:
        text = text[:MAX_QUERY_CHARS].strip()
        found = await run_blocking(lambda: DocumentTables(Location(root), dag_ids).search(text))
        return page("documents.html", request, root_id=root_id, text=text, sources=found, most=MAX_DOCUMENTS)

    @app.get("/document/{root_id}")
    async def show_document(request: Request, root: Root, source: str, dag_ids: DagIds) -> Response:
        found = await run_blocking(lambda: DocumentTables(Location(root), dag_ids).read(source))
        if not found:
            raise HTTPException(404, "No night has this document.")
        verdicts: dict[tuple[str, str], list[tuple[str, Any]]] = {}
        for night in found:
            for criterion, row in night.findings.items():
                verdicts.setdefault(criterion, []).append((night.date, row))
        decisions = [read_decision(row) for night in found for row in night.decisions]
        criteria = sorted(verdicts.items())
        return page(
            "document.html", request, source=source, nights=found, criteria=criteria, decisions=decisions
        )

    async def show_error(request: Request, error: Exception) -> Response:
        code, problem = getattr(error, "status_code", 500), str(getattr(error, "detail", ""))
        if isinstance(error, RequestValidationError):
            code, problem = 404, "Page not found: a number in its address is not valid."
        problem = problem or "The page could not be made. The log of the API server says why."
        return page("error.html", request, code, problem=problem, code=code)

    for kind in ERRORS:
        app.add_exception_handler(kind, show_error)
    return app
