"""A server that takes and gives large bodies unseen; prints its port, ends with its standard input."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from aiohttp import web

CHUNK = b"All work and no play makes a dull text. " * 6554  # about 256 KiB
FOLDER = web.AppKey("folder", Path)
SINGLE_PUT_BYTES = 4000  # bytes, about a page


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
    """Send as many MiB as the uuid says: by the kernel, so that it is not the server that is measured."""
    uuid = request.match_info["uuid"]
    kind = {"Content-Type": "text/plain; charset=utf-8"}
    if uuid.startswith("small"):
        return web.Response(body=CHUNK[:SINGLE_PUT_BYTES], headers=kind)
    file = request.app[FOLDER] / uuid
    if not file.exists():
        with file.open("wb") as sink:
            for left in range(int(uuid) << 20, 0, -len(CHUNK)):
                sink.write(CHUNK[:left])
    return web.FileResponse(file, chunk_size=1 << 20, headers=kind)


async def main() -> None:
    """Serve on a free port of this machine."""
    folder = tempfile.TemporaryDirectory()
    app = web.Application(client_max_size=1 << 40)
    app[FOLDER] = Path(folder.name)
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
    folder.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
