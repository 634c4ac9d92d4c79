//! How to mend what was found: in words, and as SQL or pseudo-code.

use super::Mend;

pub(crate) const ONE_TRANSACTION: Mend = Mend {
    words: "commit the key's record, its reply and the effect in one transaction, in a task that a \
            disconnect can't cancel",
    code: "\
BEGIN;
INSERT INTO keys (account, key, digest) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;
  -- 0 rows: another request has the key. Answer with its reply
INSERT INTO orders …;  -- the effect
UPDATE keys SET status = $4, headers = $5, body = $6 WHERE account = $1 AND key = $2;
COMMIT;  -- only now answer",
};

pub(super) const CLAIM: Mend = Mend {
    words: "claim the key before the work with a unique index, in the transaction of the work, and \
            never by looking first",
    code: "\
CREATE TABLE keys (account text, key text, …, PRIMARY KEY (account, key));

BEGIN;
INSERT INTO keys (account, key, digest) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;
  -- 1 row: the key is this request's. Work, store the reply, COMMIT
  -- 0 rows: ROLLBACK, and send the stored reply",
};

pub(super) const LEASE: Mend = Mend {
    words: "hold the claim for as long as its request works: in the transaction of the work, or by \
            a lease that is renewed, and whose loss undoes the work",
    code: "\
-- while the work goes on, each third of the lease:
UPDATE keys SET held_until = now() + interval '30 seconds'
  WHERE account = $1 AND key = $2 AND owner = $3;

-- at the end, in the transaction of the effect:
UPDATE keys SET status = $4, body = $5 WHERE account = $1 AND key = $2 AND owner = $3;
  -- 0 rows: another request has taken the key over. ROLLBACK",
};

pub(super) const SHARED: Mend = Mend {
    words: "keep keys in the database of the effects, where every process and the next one finds \
            them",
    code: "\
-- beside the tables of the effects, and written in the same transaction:
CREATE TABLE keys (
  account text, key text, digest bytea NOT NULL,
  status smallint, headers jsonb, body bytea,  -- the reply, NULL until there is one
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (account, key)
);",
};

pub(crate) const FREE: Mend = Mend {
    words: "free the key when its request fails or its process dies: with its transaction, or by a \
            lease that ends before clients give up",
    code: "\
INSERT INTO keys (account, key, digest, owner, held_until)
VALUES ($1, $2, $3, $4, now() + interval '30 seconds')
ON CONFLICT (account, key) DO UPDATE SET owner = excluded.owner, held_until = excluded.held_until
  WHERE keys.status IS NULL AND keys.held_until < now() AND keys.digest = excluded.digest;
  -- 1 row: claimed, or taken over

-- when the work has stopped without an effect:
DELETE FROM keys WHERE account = $1 AND key = $2 AND owner = $4 AND status IS NULL;",
};

pub(super) const MARK: Mend = Mend {
    words: "add a header to replays, and to nothing else",
    code: "\
reply = stored_reply(account, key)
if reply: send(reply.status, reply.headers + {\"Idempotent-Replayed\": \"true\"}, reply.body)",
};

pub(super) const PARSE: Mend = Mend {
    words: "parse the header once, before everything else",
    code: "\
values = request.headers.all(\"Idempotency-Key\")
if values.length != 1: refuse(400)
key = unquoted(values[0])  # \"key\" and key are one key, half a quote is none
if key.length < 1 or key.length > 255: refuse(400)",
};

pub(super) const FINGERPRINT: Mend = Mend {
    words: "store a digest of the request with the key, and compare it on every use",
    code: "\
digest = sha256(method, path, query, body)  # each with its length, so that no two are alike
claimed = INSERT INTO keys (account, key, digest) … ON CONFLICT DO NOTHING
if not claimed and stored.digest != digest: refuse(422)",
};

pub(super) const STORED_REPLY: Mend = Mend {
    words: "store status, headers and bytes of the first reply, and send them again",
    code: "\
reply = work(request)
UPDATE keys SET status = reply.status, headers = reply.headers, body = reply.bytes …
# a retry: never work(request), and never render the object as it is now
send(stored.status, stored.headers, stored.body)",
};

pub(super) const ACCOUNT: Mend = Mend {
    words: "make the account that the credential belongs to part of the record's key",
    code: "\
account = account_of(credential)  # not the credential: it is rotated
CREATE TABLE keys (account text, key text, …, PRIMARY KEY (account, key));",
};

pub(super) const REFUSE_FIRST: Mend = Mend {
    words: "check credentials, rates and sizes before the claim",
    code: "\
account = authenticate(request)  # or 401
limit_rate(account)              # or 429
body = read_all(request)         # or 400, 413
claim(account, key, digest)
work()",
};

pub(super) const WHOLE_BODY: Mend = Mend {
    words: "read the whole body before the claim",
    code: REFUSE_FIRST.code,
};

pub(super) const ROLL_BACK: Mend = Mend {
    words: "roll back the claim with the work, and store definite outcomes only",
    code: "\
BEGIN;
claim(); reply = work()
if reply.status >= 500: ROLLBACK;  -- the key is free, and the effect is gone
else: store(reply); COMMIT;",
};

pub(super) const TAKE_OVER: Mend = Mend {
    words: "take an expired record over in the statement that claims",
    code: "\
INSERT INTO keys (account, key, digest, expires_at) VALUES ($1, $2, $3, now() + interval '1 day')
ON CONFLICT (account, key) DO UPDATE
  SET digest = excluded.digest, expires_at = excluded.expires_at, status = NULL, body = NULL
  WHERE keys.expires_at <= now();  -- 1 row: claimed",
};

pub(super) const RETRY_AFTER: Mend = Mend {
    words: "send Retry-After with the status that says \"in progress\"",
    code: "send(409, {\"Retry-After\": \"1\"}, …)",
};

pub(super) const AT_ONCE: Mend = Mend {
    words: "answer at once that the key is in use, or set promises.in_flight to waits",
    code: RETRY_AFTER.code,
};

pub(super) const PROMISED: Mend = Mend {
    words: "answer with the promised status, or change promises.reuse",
    code: "if stored.digest != digest: refuse(422)",
};

pub(super) const PROBLEM: Mend = Mend {
    words: "send refusals of keys as application/problem+json",
    code: "\
send(422, {\"Content-Type\": \"application/problem+json\"},
     {\"type\": \"https://…/idempotency\", \"title\": \"The key was used before\", \"status\": 422})",
};

pub(super) const POLICY: Mend = Mend {
    words: "write the document from the settings that the service runs with",
    code: "send(200, {\"retention_seconds\": settings.retention_seconds, …})",
};

pub(super) const SEEN: Mend = Mend {
    words: "insert the event's id under a unique index in the transaction of the effect, and answer \
            2xx if it is there already",
    code: "\
BEGIN;
INSERT INTO seen_events (id) VALUES ($1) ON CONFLICT DO NOTHING;
  -- 0 rows: ROLLBACK, and answer 200: another delivery has done the work
UPDATE orders SET state = 'paid' …;  -- the effect
COMMIT;  -- only now answer 200",
};

pub(super) const EACH_EVENT: Mend = Mend {
    words: "decide by the event's id, and not by when the event was made",
    code: SEEN.code,
};

pub(super) const VERIFY: Mend = Mend {
    words: "verify the signature of the raw body and its timestamp before everything else",
    code: "\
body = request.raw_body  # before it is parsed
mac = hmac_sha256(secret, timestamp + \".\" + body)
if not equal_in_constant_time(mac, signature): refuse(400)
if abs(now() - timestamp) > 300: refuse(400)
handle(body)",
};
