"""The application of the library's README, with Redis."""

import asyncio
import os

from fastapi import FastAPI, Request
from fastapi.middleware import Middleware
from fastapi.responses import JSONResponse
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import RedisBackend
from redis.asyncio import Redis

# The README's default is a day. The check of what happens afterwards takes as long.
backend = RedisBackend(redis=Redis(port=int(os.environ["REDIS_PORT"])), expiry=25)
app = FastAPI(middleware=[Middleware(IdempotencyHeaderMiddleware, backend=backend)])
failed = set()


@app.post("/charges")
async def charge(request: Request):
    body = await request.json()
    note, do = body["note"], body.get("do")
    if do == "refuse":
        return JSONResponse({"error": "declined"}, 402)
    if do == "fail" and note not in failed:
        failed.add(note)
        raise RuntimeError("the database is gone")
    with open(os.environ["EFFECTS"], "a") as effects:
        effects.write(f"{note}\n")
    await asyncio.sleep(2 if do == "slow" else 0.05)
    return JSONResponse({"id": os.urandom(8).hex(), "amount": body["amount"]}, 201)
