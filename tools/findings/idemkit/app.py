"""The middleware of the library's README, with Redis and a scope."""

import asyncio
import os

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from idemkit import HttpConfig, IdempotencyMiddleware, RedisBackend

app = FastAPI()
app.add_middleware(
    IdempotencyMiddleware,
    backend=RedisBackend.from_url(f"redis://127.0.0.1:{os.environ['REDIS_PORT']}"),
    config=HttpConfig(
        scope=lambda req: req.headers.get("x-user-id", "anonymous"),
        require_key_for_mutations=True,
        # The defaults are 30 and 10. With 5, a crash is over sooner.
        lease_ttl_seconds=5,
        wait_timeout_seconds=2,
    ),
)
failed = set()


@app.post("/charges")
async def charge(request: Request):
    body = await request.json()
    note, do = body["note"], body.get("do")
    if do == "refuse" and note not in failed:
        failed.add(note)
        return JSONResponse({"error": "declined"}, 402)
    if do == "fail" and note not in failed:
        failed.add(note)
        return JSONResponse({"error": "the database is gone"}, 503)
    with open(os.environ["EFFECTS"], "a") as effects:
        effects.write(f"{note}\n")
    await asyncio.sleep(2 if do == "slow" else 0.05)
    return JSONResponse({"id": os.urandom(8).hex(), "amount": body["amount"]}, 201)
