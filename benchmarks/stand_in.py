"""A server that takes and gives large bodies unseen; prints its port, ends with its standard input."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

CHUNK = b"All work and no play makes a dull text. " * 6554  # about 256 KiB
SMALL = 4000  # bytes, about a page


async def token(request: web.Request) -> web.Response:
    """Issue a token."""
    return web.json_response({"access_token": "t", "expires_in": 3600, "token_type": "Bearer"})


async def take(request: web.Request) -> web.Response:
    """Read an upload and forget it."""
    async for _ in request.content.iter_chunked(1 << 20):
        pass
    return web.json_response({"uuid": "u", "status": "PENDING"}, status=202)


async def statuses(request: web.Request) -> web.Response:
    """Say that every job is completed."""
    uuids = (await request.json())["uuids"]
    return web.json_response([{"uuid": uuid, "status": "COMPLETED"} for uuid in uuids])


async def give(request: web.Request) -> web.StreamResponse:
    """Send as many MiB as the uuid says, chunked."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    await response.prepare(request)
    uuid = request.match_info["uuid"]
    left = SMALL if uuid.startswith("small") else int(uuid) << 20
    while left:
        piece = CHUNK[:left]
        await response.write(piece)
        left -= len(piece)
    await response.write_eof()
    return response


async def main() -> None:
    """Serve on a free port of this machine."""
    app = web.Application(client_max_size=1 << 40)
    app.router.add_post("/token", token)
    app.router.add_post("/api/v1/content-processing/file", take)
    app.router.add_post("/api/v1/content-processing/status/batch", statuses)
    app.router.add_get("/api/v1/content-processing/{uuid}/content", give)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
