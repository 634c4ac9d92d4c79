"""check_history.py finds nothing in a small right history, and what is wrong in each wrong one.

    python3 tools/torture/tests/test_check_history.py
"""

import copy
import json
import pathlib
import sys
import tempfile
import unittest

# No file of bytecode beside the sources.
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from check_history import Run, public_id, tombstone_id  # noqa: E402

ALICE, BOB = "0198a1f2-7c1e-7d1a-9f0e-000000000001", "0198a1f2-7c1e-7d1a-9f0e-000000000002"
CHARGE = "0198a1f2-7c1e-7d1a-9f0e-000000000003"
ID = public_id("ch", CHARGE)
BODY = {"object": "charge", "id": ID, "status": "succeeded", "metadata": {"torture": "t1"}}
STORED = {
    "event": "reply", "at": "2026-11-26T12:00:01Z", "attempt": 1, "outcome": "stored", "status": 201,
    "execution": "req_1", "expires": "2026-11-27T12:00:00Z", "digest": "d1", "body_digest": "b1", "body": BODY,
}
HISTORY = [
    {"event": "run", "version": 1, "profile": "transaction", "seed": 1, "retention": 86400, "tag": "torture",
     "stock": {}, "at": "2026-11-26T12:00:00Z"},
    {"event": "request", "request": 0, "account": "alice", "key": "k1", "method": "POST", "path": "/charges",
     "media_type": "application/json", "body": '{"amount": 500, "currency": "usd"}', "tag": "t1",
     "shows_tag": True, "repeatable": False, "leaves_event": True, "expected": "any"},
    {"event": "invoke", "at": "2026-11-26T12:00:00Z", "attempt": 1, "request": 0, "replica": 0},
    STORED,
    {"event": "read", "at": "2026-11-26T12:00:02Z", "account": "bob", "object": ID, "owner": "alice", "status": 404},
]
EVENT = {"id": "e1", "account_id": ALICE, "type": "charge.succeeded", "object": ID, "request_id": "req_1",
         "idempotency_key": "k1", "created_at": "2026-11-26T12:00:00.5+00:00"}
ROW = {"account_id": ALICE, "id": CHARGE, "amount": 500, "currency": "usd", "amount_captured": 500,
       "amount_refunded": 0, "status": "succeeded", "released": False, "order_id": None,
       "payment_intent_id": None, "metadata": {"torture": "t1"}}
RECORD = {"account_id": ALICE, "key": "k1", "request_id": "req_1", "status": 201, "body_digest": "b1"}
DUMP = [("accounts", {"id": ALICE, "name": "alice"}), ("accounts", {"id": BOB, "name": "bob"}),
        ("events", EVENT), ("charges", ROW), ("idempotency_keys", RECORD)]


def rules(history, dump):
    """The rules that a history and a dump break."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / name for name in ("history", "dump")]
        rows = [dict(zip(("table", "row", "shard"), line)) for line in dump]
        for path, lines in zip(paths, (history, rows)):
            path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        run = Run(*paths)
        run.check()
        return {rule for rule, _ in run.found}


class WrongHistories(unittest.TestCase):
    def setUp(self):
        self.history, self.dump = copy.deepcopy(HISTORY), copy.deepcopy(DUMP)

    def assert_breaks(self, *expected):
        self.assertEqual(rules(self.history, self.dump), set(expected))

    def test_a_right_history_breaks_nothing(self):
        self.assert_breaks()

    def test_a_second_effect_of_a_key(self):
        """As bugs/02-two-transactions makes it."""
        again = EVENT | {"id": "e2", "request_id": "req_2", "created_at": "2026-11-26T12:00:09+00:00"}
        self.dump.append(("events", again))
        self.assert_breaks("G1")

    def test_a_replay_with_other_bytes(self):
        """As bugs/07-replay-rendered-afresh makes it."""
        self.history.append({**self.history[2], "attempt": 2})
        self.history.append(STORED | {"attempt": 2, "digest": "d2", "body_digest": "b2"})
        self.assert_breaks("G4")

    def test_an_object_of_another_account(self):
        """As bugs/20-read-forgets-the-account makes it."""
        self.history[4]["status"] = 200
        self.assert_breaks("G6")

    def test_an_object_of_another_account_below_v1(self):
        refused = {"status": 400, "body": {"error": {"code": "resource_missing"}}}
        self.history[1] |= {"path": "/v1/refunds", "expected": "missing", "leaves_event": False}
        self.history[3:] = [STORED | refused]
        self.dump = DUMP[:2] + [("idempotency_keys", RECORD | {"status": 400})]
        self.assert_breaks()
        self.history[1]["path"] = "/refunds"
        self.assert_breaks("G6")

    def test_an_account_with_rows_in_two_databases(self):
        self.dump = [(*line, "b" if line[0] == "events" else "main") for line in self.dump]
        self.assert_breaks("G6")

    def live_in_homes(self, first, second, *moves):
        """The key is executed in the first home, and another one of its account before and after in the second."""
        self.dump = [(*line, "b") for line in self.dump]
        for key, request, shard, at in (("k0", "req_0", second, "11:59:59"), ("k1", "req_1", first, "12:00:00.4"),
                                        ("k2", "req_2", second, "12:00:01.25")):
            note = {"account_id": ALICE, "key": key, "request_id": request, "at": f"2026-11-26T{at}+00:00"}
            self.dump.append(("executions", note, shard))
        self.history += [{"event": "move", "at": f"2026-11-26T12:00:0{number}Z", "until": "2026-11-26T12:00:09Z",
                          "account": "alice", "to": to, "end": end} for number, (to, end) in enumerate(moves)]

    def test_an_account_that_moves(self):
        self.live_in_homes("main", "b", ("main", "killed"), ("main", "moved"), ("b", "failed"), ("b", "moved"))
        self.assert_breaks()

    def test_an_account_that_acts_in_two_homes(self):
        """As a freeze that no trigger looks at makes it."""
        self.live_in_homes("main", "b", ("main", "killed"), ("main", "undone"), ("b", "moved"))
        self.assert_breaks("G6")

    def test_a_key_that_is_executed_in_two_homes(self):
        self.live_in_homes("main", "b", ("main", "moved"), ("b", "moved"))
        self.dump.append(("executions", self.dump[-2][1] | {"at": "2026-11-26T12:00:01.5+00:00"}, "b"))
        self.assert_breaks("G1")

    def test_an_answer_that_no_home_has_executed(self):
        self.live_in_homes("main", "b", ("main", "moved"), ("b", "moved"))
        del self.dump[-2]
        self.assert_breaks("G2")

    def test_an_account_that_is_not_where_it_was_moved_to(self):
        self.live_in_homes("main", "b", ("b", "moved"), ("main", "moved"))
        self.assert_breaks("G6")

    def test_an_answer_that_left_nothing(self):
        """As bugs/16-batch-answers-before-commit makes it."""
        self.dump = self.dump[:2]
        self.assert_breaks("G2")

    def test_a_charge_that_no_request_asked_for(self):
        other = "0198a1f2-7c1e-7d1a-9f0e-000000000004"
        self.dump.append(("charges", ROW | {"id": other, "metadata": {}}))
        self.assert_breaks("G3")

    def give_up(self, status, outcome, execution="req_2"):
        """Another request gives the key up, and is told this."""
        told = {"object": "idempotency_key", "key": "k1", "status": status, "response_status": outcome,
                "request": execution, "created": 1795694400, "expires": 1795780800}
        self.history.append(self.history[1] | {
            "request": 1, "key": "k2", "path": "/v1/idempotency-keys/k1/abandon", "body": "{}", "tag": "t2",
            "shows_tag": False, "leaves_event": False})
        self.history.append(self.history[2] | {"attempt": 2, "request": 1})
        self.history.append(STORED | {
            "attempt": 2, "status": 200, "execution": "req_2", "digest": "d2", "body_digest": "b2", "body": told})
        self.dump.append(("idempotency_keys", RECORD | {
            "key": "k2", "request_id": "req_2", "status": 200, "body_digest": "b2"}))

    def answer_as_given_up(self):
        refused = {"status": 409, "execution": "req_2", "digest": "d3", "body_digest": "b3",
                   "body": {"error": {"code": "idempotency_key_abandoned"}}}
        self.history[3] |= refused
        self.dump[4] = ("idempotency_keys", RECORD | {
            "request_id": "req_2", "status": 409, "body_digest": "b3"})

    def test_a_key_that_is_given_up_after_its_request(self):
        self.give_up("completed", 201, "req_1")
        self.assert_breaks()
        self.history[-1]["body"]["response_status"] = 402
        self.assert_breaks("G10")

    def test_a_key_that_is_given_up_before_its_request(self):
        self.give_up("abandoned", 409)
        self.answer_as_given_up()
        self.history[1]["expected"] = "missing"
        effect = self.dump[2:4]
        del self.dump[2:4], self.history[4]
        self.assert_breaks()
        # As bugs/34-abandon-looks-first makes it.
        self.dump += effect
        self.history[1]["expected"] = "any"
        self.assert_breaks("G10")

    def test_a_charge_that_is_said_to_be_given_up(self):
        """As bugs/35-abandon-overwrites-an-outcome makes it."""
        self.give_up("abandoned", 409)
        self.dump[4] = ("idempotency_keys", RECORD | {"request_id": "req_2", "status": 409, "body_digest": "b3"})
        self.assert_breaks("G2", "G10")

    def ask_late(self, resource=ID):
        """The key has expired and is swept, and is asked again. Its record and its memory name this."""
        self.history[0] |= {"retention": 3, "memory": 31536000}
        self.history[3]["expires"] = "2026-11-26T12:00:03Z"
        self.history.append(self.history[2] | {"at": "2026-11-26T12:00:09Z", "attempt": 2})
        self.history.append(STORED | {
            "attempt": 2, "status": 409, "execution": "req_2", "digest": "d2", "body_digest": "b2",
            "expires": "2026-11-26T12:00:12Z",
            "body": {"error": {"code": "idempotency_key_expired", "resource": resource}}})
        self.dump[4] = ("idempotency_tombstones", {"id": tombstone_id(ALICE, "k1"), "resource_id": ID})

    def test_a_key_that_is_remembered(self):
        self.ask_late()
        self.assert_breaks()
        del self.dump[4]
        self.assert_breaks("G11")

    def test_a_second_effect_of_a_key_that_is_remembered(self):
        """As bugs/36-memory-asked-before-the-claim makes it."""
        self.ask_late()
        del self.history[-2:]
        again = EVENT | {"id": "e2", "request_id": "req_2", "created_at": "2026-11-26T12:00:09+00:00"}
        self.dump.append(("events", again))
        self.assert_breaks("G1", "G11")

    def test_a_refusal_that_names_another_object(self):
        self.ask_late("ch_another")
        self.assert_breaks("G11")

    def test_a_refusal_before_the_key_can_have_expired(self):
        self.ask_late()
        self.history[-1]["expires"] = "2026-11-26T12:00:04Z"
        self.assert_breaks("G1", "G11")

    def test_a_refusal_where_nothing_is_remembered(self):
        self.ask_late()
        self.history[0]["memory"] = 0
        self.assert_breaks("G11")

    def test_a_refund_that_its_charge_does_not_know(self):
        refund = {"account_id": ALICE, "id": CHARGE, "charge_id": CHARGE, "amount": 5, "status": "succeeded",
                  "metadata": {}}
        self.dump.append(("refunds", refund))
        self.assert_breaks("G5")


if __name__ == "__main__":
    unittest.main()
