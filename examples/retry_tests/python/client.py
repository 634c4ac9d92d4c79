"""A small client of charge-once. It sends a charge again, under one key, until it knows the answer."""

import http.client
import json
import random
import time
import urllib.error
import urllib.request

# The same request with the same key may end otherwise: the server did not answer for good.
RETRIED = {408, 409, 429, 500, 502, 503, 504}


class Refused(Exception):
    """A definite no. Another attempt needs a new key."""

    def __init__(self, status, error):
        super().__init__(f"{status} {error['code']}")
        self.status = status
        self.error = error


class Unknown(Exception):
    """No definite answer came. The charge may exist: only a retry with the same key finds out."""


class Client:
    """`headers` go with every request. Times are in seconds."""

    def __init__(self, url, api_key, *, attempts=8, pause=0.1, timeout=5.0, headers=None):
        self.url = url
        self.attempts = attempts
        self.pause = pause
        self.timeout = timeout
        self.headers = {
            "Authorization": f"Bearer {api_key}",
            "Content-Type": "application/json",
            **(headers or {}),
        }

    def charge(self, key, **parameters):
        """One charge, however often it is asked for. The caller keeps the key with its order."""
        return self.post("/charges", key, parameters)

    def post(self, path, key, parameters):
        # Serialized once, so that every attempt is the same request.
        body = json.dumps(parameters).encode()
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(self.pause * 2 ** min(attempt, 4) * random.uniform(0.5, 1))
            reply = self.attempt(path, key, body)
            if reply is None:
                continue
            status, answer = reply
            if status < 300:
                return answer
            if status not in RETRIED:
                raise Refused(status, answer["error"])
        raise Unknown(f"no definite answer after {self.attempts} attempts")

    def attempt(self, path, key, body):
        """Sends a request once. `None` is no reply, which says nothing about what the server did."""
        request = urllib.request.Request(
            self.url + path, body, {**self.headers, "Idempotency-Key": key}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except (OSError, http.client.HTTPException):
            return None

    def charges(self):
        """The newest hundred charges of the account."""
        request = urllib.request.Request(self.url + "/charges?limit=100", headers=self.headers)
        with urllib.request.urlopen(request, timeout=self.timeout) as reply:
            return json.load(reply)["data"]
