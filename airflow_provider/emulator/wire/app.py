"""The web application: which handler stands behind which path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from airflow_provider.emulator.operations import JWKS, JWKS_PATH, LOGIN, OPERATIONS, TOKEN_PATH
from airflow_provider.emulator.processing import Processor
from airflow_provider.emulator.wire import assessments, content, control, frameworks, token
from airflow_provider.emulator.wire.answers import CONTEXT, Context
from airflow_provider.emulator.wire.gateway import finish_headers, gateway

if TYPE_CHECKING:
    from airflow_provider.emulator.controls import Controls
    from airflow_provider.emulator.memory.state import State

# Uploads are not held in memory and have a limit of their own.
MAX_BODY = 64 * 2**20


def make_app(state: State, controls: Controls) -> web.Application:
    """Build the application around a memory."""
    app = web.Application(middlewares=[gateway], client_max_size=MAX_BODY)
    app[CONTEXT] = [Context(state, Processor(state), controls)]
    for name, (method, _) in OPERATIONS.items():
        module = next(each for each in (content, frameworks, assessments) if hasattr(each, name))
        app.router.add_route(method, state.settings.path_of(name), getattr(module, name), name=name)
    app.router.add_route("POST", TOKEN_PATH, token.issue_token, name=LOGIN)
    app.router.add_route("GET", JWKS_PATH, token.show_keys, name=JWKS)
    app.add_routes(control.ROUTES)

    app.on_startup.append(resume_processing)
    app.on_cleanup.append(stop_processing)
    app.on_response_prepare.append(finish_headers)
    return app


async def resume_processing(app: web.Application) -> None:
    """Go on where the emulator was when it was stopped."""
    app[CONTEXT][0].processor.resume()


async def stop_processing(app: web.Application) -> None:
    """End the work and let go of the memory."""
    await app[CONTEXT].pop().processor.close()
