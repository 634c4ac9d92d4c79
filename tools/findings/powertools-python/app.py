"""A Lambda function with the utility's decorator and Redis, behind HTTP as API Gateway would send it."""

import json
import os
import time
from dataclasses import dataclass, field

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyKeyError,
    IdempotencyValidationError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from flask import Flask, request
from redis import Redis

store = CachePersistenceLayer(client=Redis(port=int(os.environ["REDIS_PORT"]), decode_responses=True))
config = IdempotencyConfig(
    event_key_jmespath='headers."Idempotency-Key"',
    # Off unless it is asked for: ../powertools-python-validated does.
    payload_validation_jmespath="body" if "VALIDATED" in os.environ else "",
    raise_on_no_idempotency_key=True,
)


@dataclass
class Context:
    """What Lambda tells a function: how long it may still run. This one's timeout is 5 s."""

    deadline: float = field(default_factory=lambda: time.time() + 5)

    def get_remaining_time_in_millis(self):
        return max(0, int((self.deadline - time.time()) * 1000))


@idempotent(config=config, persistence_store=store)
def handler(event, context):
    body = json.loads(event["body"])
    note, do = body["note"], body.get("do")
    if do == "refuse":
        return {"statusCode": 402, "body": '{"error": "declined"}'}
    marker = f"{os.environ['EFFECTS']}.{note}"
    if do == "fail" and not os.path.exists(marker):
        open(marker, "w").close()
        raise RuntimeError("the database is gone")
    with open(os.environ["EFFECTS"], "a") as effects:
        effects.write(f"{note}\n")
    time.sleep(2 if do == "slow" else 0.05)
    return {"statusCode": 201, "body": json.dumps({"id": os.urandom(8).hex(), "amount": body["amount"]})}


app = Flask(__name__)


@app.post("/charges")
def charge():
    event = {"headers": dict(request.headers), "body": request.get_data(as_text=True)}
    reply = handler(event, Context())
    return reply["body"], reply["statusCode"], {"Content-Type": "application/json"}


# The utility raises, and the application chooses the statuses: here those of the IETF draft.
@app.errorhandler(IdempotencyKeyError)
def missing(error):
    return {"error": "no Idempotency-Key"}, 400


@app.errorhandler(IdempotencyValidationError)
def reused(error):
    return {"error": "the key was used for another body"}, 422


@app.errorhandler(IdempotencyAlreadyInProgressError)
def in_progress(error):
    return {"error": "in progress"}, 409
