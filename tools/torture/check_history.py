#!/usr/bin/env python3
"""Verifies G1 to G6, G10 and G11 from the history of a run and a dump of its final tables, and nothing else.

    tools/torture/check_history.py FOLDER
    tools/torture/check_history.py PROFILE.history.jsonl PROFILE.dump.jsonl

It shares no code with the checker in Rust. README.md describes the rules, and HISTORY.md the files. It needs Python 3.11.
"""

import gzip
import hashlib
import json
import pathlib
import re
import sys
import uuid
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from urllib.parse import parse_qsl

# An expiry has whole seconds, and a transaction may begin so long before it has its key.
ROUNDING = timedelta(seconds=1)
# The tables of objects, and how their ids begin.
KINDS = {
    "charges": "ch", "refunds": "re", "orders": "or", "checkouts": "co", "payment_intents": "pi",
    "setup_intents": "seti", "customers": "cus", "payment_methods": "pm",
}
# The tables of objects that carry the tag of the request that asked for them, unless another object did.
TAGGED = ("charges", "orders", "checkouts", "payment_intents", "setup_intents", "customers")
# States that last: an object that was shown in one of them is in it at the end.
FINAL = {
    "order": ("orders", {"canceled"}), "checkout": ("checkouts", {"completed", "canceled"}),
    "payment_intent": ("payment_intents", {"succeeded", "canceled"}), "charge": ("charges", {"failed"}),
}
# What a request that is about another account's object, or can't be understood, is answered with.
EXPECTED = {"missing": ("G6", 404), "refused": ("G3", 400)}
# The path of a request that gives a key up.
GIVES_UP = re.compile("(?:/v1)?/idempotency-keys/([^/]+)/abandon")


def public_id(kind, text):
    """The id of a row as clients see it: its 128 bits in 26 digits of 5 bits."""
    bits, digits = uuid.UUID(text).int, "0123456789abcdefghjkmnpqrstvwxyz"
    return kind + "_" + "".join(digits[bits >> shift & 31] for shift in range(125, -1, -5))


def tombstone_id(account, key):
    """The id of what is remembered of a key: half of it is of the account, half of both."""
    halves = uuid.UUID(account).bytes, f"{account}:{key}".encode()
    return str(uuid.UUID(bytes=b"".join(hashlib.sha256(half).digest()[:8] for half in halves)))


def lines(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def parameters(request):
    """The members of a body by their paths, as a form names them."""
    if request["media_type"] != "application/json":
        return dict(parse_qsl(request["body"]))
    found = {}

    def walk(path, value):
        if isinstance(value, (dict, list)):
            for name, member in value.items() if isinstance(value, dict) else enumerate(value):
                walk(f"{path}[{name}]" if path else str(name), member)
        else:
            found[path] = str(value)

    walk("", json.loads(request["body"]))
    return found


class Run:
    """A history and a dump, and what is wrong with them."""
    def __init__(self, history, dump):
        self.found, self.lines, self.tables = {}, defaultdict(list), defaultdict(list)
        self.shards, self.notes = defaultdict(set), []
        for line in lines(history):
            self.lines[line["event"]].append(line)
        for line in lines(dump):
            if line["table"] == "executions":
                self.notes.append((line["row"], line["shard"]))
                continue
            self.tables[line["table"]].append(line["row"])
            self.shards[line["row"].get("account_id", line["row"].get("id"))].add(line.get("shard"))
        [self.run] = self.lines["run"]
        self.retention = timedelta(seconds=self.run["retention"])
        self.expires = self.retention < timedelta(days=1)
        self.memory = timedelta(seconds=self.run.get("memory", 0))
        # How long a key has one effect.
        self.window = self.retention + self.memory
        self.names = {row["id"]: row["name"] for row in self.tables["accounts"]}
        self.objects = {public_id(kind, row["id"]): (table, row)
                        for table, kind in KINDS.items() for row in self.tables[table]}
        requests = {one["request"]: one for one in self.lines["request"]}
        for one in self.lines["invoke"]:
            one["request"] = requests[one["request"]]
        sent = {one["attempt"]: one["request"] for one in self.lines["invoke"]}
        self.sent = Counter((one["account"], one["key"]) for one in requests.values())
        self.by_tag = {one["tag"]: one for one in requests.values()}
        self.stored = [one for one in self.lines["reply"] if one["outcome"] == "stored"]
        bodies = {(one["execution"], one["digest"]): one["body"] for one in self.stored if "body" in one}
        for one in self.lines["reply"]:
            one["request"] = sent[one["attempt"]]
            one["key"] = (one["request"]["account"], one["request"]["key"])
            one["shown"] = bodies.get((one.get("execution"), one.get("digest")), {})
            code = one["shown"].get("error", {}).get("code")
            one["given_up"], one["expired"] = (code == f"idempotency_key_{word}" for word in ("abandoned", "expired"))

    def violate(self, rule, text):
        self.found[rule, text] = True

    def once(self, rule, counts, what):
        for thing, count in counts.items():
            if count > 1:
                self.violate(rule, f"{thing} {what} {count} times")

    def row(self, public, table=None):
        """The row of an object, of this table if one is named, or else nothing."""
        found = self.objects.get(public, (None, {}))
        return found[1] if table in (None, found[0]) else {}

    def tag(self, row):
        return (row.get("metadata") or {}).get(self.run["tag"])

    def check(self):
        for check in (self.one_effect, self.nothing_lost, self.nothing_unasked, self.one_answer, self.money,
                      self.intents, self.processor, self.accounts, self.homes, self.given_up, self.remembered):
            check()

    def one_effect(self):
        """G1: one effect per account, key and window."""
        ends, asked = defaultdict(dict), defaultdict(set)
        for one in self.stored:
            ends[one["key"]][one["execution"]] = datetime.fromisoformat(one["expires"])
            # A key that was given up answers each request.
            if not one["given_up"]:
                asked[one["execution"]].add(one["request"]["tag"])
            shown = self.tag(one["shown"]) if one["request"]["shows_tag"] else None
            if shown not in (None, one["request"]["tag"]):
                self.violate("G1", f"{one['key']}: {one['request']['tag']} is answered with {shown}")
        for key, executions in ends.items():
            self.apart(key, executions, self.retention, "were answered in one window")
        self.once("G1", {execution: len(tags) for execution, tags in asked.items()}, "answered requests")
        began, changes = defaultdict(dict), Counter()
        for event in self.tables["events"]:
            key = (self.names[event["account_id"]], event["idempotency_key"])
            # The deletion of a customer detaches all of its methods.
            detached = event["object"] if event["type"] == "payment_method.detached" else ""
            changes[*key, event["request_id"], event["type"], detached] += 1
            if key[1]:
                at, request = datetime.fromisoformat(event["created_at"]), event["request_id"]
                began[key][request] = min(at, began[key].get(request, at))
        self.once("G1", changes, "happened")
        for key, executions in began.items():
            self.apart(key, executions, self.window, "both had an effect in one window")
        for column in ("order_id", "payment_intent_id"):
            self.once("G1", Counter((column, row[column]) for row in self.tables["charges"]
                                    if row[column] and row["status"] == "succeeded"), "took money")

    def apart(self, what, times, window, text):
        ordered = sorted((at, execution) for execution, at in times.items())
        for (first, one), (second, other) in pairwise(ordered):
            if second - first < window - ROUNDING:
                self.violate("G1", f"{what}: {one} and {other} {text}")

    def nothing_lost(self):
        """G2: nothing that was acknowledged is missing."""
        events = self.tables["events"]
        effects = {(self.names[one["account_id"]], one["idempotency_key"], one["request_id"]) for one in events}
        for one in self.stored:
            request, execution, status, shown = (one[name] for name in ("request", "execution", "status", "shown"))
            leaves = request["leaves_event"] and not (request["repeatable"] and self.expires and not self.memory)
            if (status < 300 or status == 402) and leaves and (*one["key"], execution) not in effects:
                self.violate("G2", f"{execution} was acknowledged with {status}, and left nothing")
            id, told = shown.get("id"), shown.get("status")
            if status < 300 and request["shows_tag"] and self.tag(self.row(id)) != request["tag"]:
                self.violate("G2", f"{execution} acknowledged {id}, which is not there")
            table, final = FINAL.get(shown.get("object"), (None, ()))
            if status < 300 and told in final and self.row(id, table).get("status") != told:
                self.violate("G2", f"{id} was said to be {told}, and is not")
        for told in self.lines["told"]:
            if told["state"] == "deleted" and not self.row(told["object"]).get("deleted_at"):
                self.violate("G2", f"{told['object']} was said to be deleted, and is not")
        records = {(self.names[row["account_id"]], row["key"]): row for row in self.tables["idempotency_keys"]}
        for one in [] if self.expires else self.stored:
            row = records.get(one["key"], {})
            if row.get("request_id") != one["execution"]:
                self.violate("G2", f"{one['execution']} was answered, and {row.get('request_id')} is recorded")
            elif (row["status"], row["body_digest"]) != (one["status"], one["body_digest"]):
                self.violate("G4", f"{one['execution']} was answered otherwise than it is recorded")

    def nothing_unasked(self):
        """G3: nothing exists that no client asked for."""
        for event in self.tables["events"]:
            key = (self.names[event["account_id"]], event["idempotency_key"])
            # A deletion has no key, and the page of an authentication one that no header can name.
            if key[1] and not key[1].startswith(",") and key not in self.sent:
                self.violate("G3", f"{event['request_id']} used the key {key}, which no client sent")
            if event["object"] not in self.objects:
                self.violate("G3", f"an event tells of {event['object']}, which is not there")
        paid = {row["order_id"] for row in self.tables["checkouts"]}
        for public, (table, row) in self.objects.items():
            asked = self.tag(row)
            if asked is None:
                of_another = row.get("order_id") or (table == "orders" and row["id"] in paid)
                if table in TAGGED and not of_another:
                    self.violate("G3", f"{public} exists, which no request asked for")
            elif asked not in self.by_tag:
                self.violate("G3", f"{public} has the tag {asked}, which no request had")
            elif self.by_tag[asked]["account"] != self.names[row["account_id"]]:
                self.violate("G6", f"{public} is of a request of another account")
            else:
                self.as_asked(public, table, row, self.by_tag[asked])

    def as_asked(self, public, table, row, request):
        """An object has the amount and the currency that its request asked for."""
        asked = parameters(request)
        wanted = {name: asked[name] for name in ("amount", "currency") if name in asked}
        if table in ("orders", "checkouts"):
            wanted["amount"] = str(sum(int(price) * int(asked[name.replace("unit_amount", "quantity")])
                                       for name, price in asked.items() if "unit_amount" in name))
        for name, value in wanted.items() if not row.get("payment_intent_id") or table == "refunds" else []:
            if name in row and str(row[name]) != value:
                self.violate("G3", f"{public} has the {name} {row[name]}, and was asked to have {value}")

    def one_answer(self):
        """G4: all definite answers to a key are equal."""
        digests = defaultdict(set)
        for one in self.lines["reply"]:
            request, key = one["request"], one["key"]
            if one["outcome"] == "malformed":
                self.violate("G4", f"{key}: {one['why']}")
            elif one["outcome"] == "reused" and self.sent[key] == 1:
                self.violate("G4", f"{key} was sent with one request, and is said to be another one's")
            elif one["outcome"] == "stored":
                digests[*key, one["execution"]].add(one["digest"])
                expected = None if one["given_up"] or one["expired"] else request["expected"]
                rule, status = EXPECTED.get(expected, ("", one["status"]))
                # Below /v1, an object that a parameter names is missing in Stripe's words.
                # The body stands at the first of equal replies.
                code = one.get("body", {"error": {"code": "resource_missing"}}).get("error", {}).get("code")
                is_stripes = request["path"].startswith("/v1/") and (one["status"], code) == (400, "resource_missing")
                if one["status"] != status and not (rule == "G6" and is_stripes):
                    self.violate(rule, f"{key}: {request['expected']}, and answered with {one['status']}")
        self.once("G4", {execution: len(all) for execution, all in digests.items()}, "was answered differently")

    def money(self):
        """G5: money adds up: charges, refunds, orders and stock."""
        refunded = Counter()
        for row in self.tables["refunds"]:
            if row["status"] != "failed":
                refunded[row["charge_id"]] += row["amount"]
        charges = {row["id"]: row for row in self.tables["charges"]}
        for id, row in charges.items():
            most = row["amount"] if row["released"] else row["amount_captured"]
            if row["amount_refunded"] != refunded[id]:
                self.violate("G5", f"charge {id} says {row['amount_refunded']}, and its refunds {refunded[id]}")
            if row["amount_captured"] > row["amount"] or row["amount_refunded"] > most:
                self.violate("G5", f"charge {id} moved more money than it may")
        for row in self.tables["orders"]:
            charge = charges.get(row["charge_id"], {})
            paid = tuple(charge.get(name) for name in ("status", "amount", "order_id"))
            if row["charge_id"] and paid != ("succeeded", row["amount"], row["id"]):
                self.violate("G5", f"order {row['id']} is not paid by a charge of its total")
        taken = Counter()
        for row in self.tables["checkouts"]:
            for item in row["items"] if row["status"] == "completed" else []:
                taken[row["account_id"], item.get("sku")] += item["quantity"]
        for row in self.tables["inventory"]:
            first = self.run["stock"].get(row["sku"])
            left = row["quantity"] + taken[row["account_id"], row["sku"]]
            if row["quantity"] < 0 or first is not None and left != first:
                self.violate("G5", f"{row['quantity']} of {row['sku']} are left, and not all others were sold")

    def intents(self):
        """G5: the money of an intent is that of its one charge."""
        took = {row["payment_intent_id"]: row for row in self.tables["charges"] if row["status"] == "succeeded"}
        for row in self.tables["payment_intents"]:
            charge = took.get(row["id"], {"released": True})
            received = 0 if charge["released"] else charge["amount_captured"]
            is_held = row["status"] in ("succeeded", "requires_capture")
            if is_held == charge["released"] or row["amount_received"] != received:
                self.violate("G5", f"intent {row['id']} is {row['status']}, and its charge holds {received}")

    def processor(self):
        """G1 and G5: the processor's ledger has each charge once, with the same sums."""
        self.once("G1", Counter(row["charge"] for row in self.tables["processor.operations"]
                                if row["verb"] == "authorize" and row["code"] is None), "was authorized")
        for ledger in self.tables["processor.charges"]:
            charge, row = ledger["charge"], self.row(ledger["charge"], "charges")
            here = tuple(row.get(name) for name in ("amount", "amount_captured", "amount_refunded"))
            # Releasing a whole authorization is a refund.
            refunded = ledger["refunded" if ledger["captured"] else "released"]
            there = (ledger["authorized"], ledger["captured"], refunded)
            if not row:
                self.violate("G1", f"the processor authorized {charge}, which is not there")
            elif there != here:
                self.violate("G5", f"{charge}: the processor has {there}, and the database {here}")

    def accounts(self):
        """G6: nothing crosses accounts."""
        for read in self.lines["read"]:
            own = read["account"] == read["owner"]
            if read["status"] != (200 if own else 404):
                self.violate("G2" if own else "G6", f"{read['account']} read {read['object']}: {read['status']}")
        self.once("G6", {name: len(self.shards[id]) for id, name in self.names.items()}, "lives in a shard")

    def homes(self):
        """G1, G2 and G6: a key is executed in one home, and an account acts in one at a time, and ends in the last."""
        noted, homes, acts, moves = set(), defaultdict(set), defaultdict(list), defaultdict(list)
        for row, shard in self.notes:
            key = (self.names.get(row["account_id"], row["account_id"]), row["key"])
            noted.add((*key, row["request_id"]))
            homes[key].add(shard)
            acts[key[0]].append((datetime.fromisoformat(row["at"]), shard))
        for key, shards in homes.items():
            if len(shards) > 1:
                self.violate("G1", f"{key} was executed in the homes {sorted(shards)}")
        for one in self.stored if self.notes else []:
            if (*one["key"], one["execution"]) not in noted:
                self.violate("G2", f"{one['execution']} was answered, and no home has executed it")
        for one in self.lines["move"]:
            moves[one["account"]] += [one["to"]] if one["end"] == "moved" else []
        for account, all in acts.items():
            changes = sum(one != other for (_, one), (_, other) in pairwise(sorted(all)))
            if changes > len(moves[account]):
                count = f"{changes} changes, and {len(moves[account])} moves"
                self.violate("G6", f"{account} acted in two homes at a time: {count}")
        for id, name in self.names.items():
            if moves[name] and self.shards[id] != {moves[name][-1]}:
                self.violate("G6", f"{name} was moved to {moves[name][-1]}, and has rows in {sorted(self.shards[id])}")

    def given_up(self):
        """G10: a key that was given up has no effect in its window, or the outcome that was told."""
        answers, effects = defaultdict(list), defaultdict(list)
        for one in self.stored:
            answers[one["key"]].append(one)
        for event in self.tables["events"]:
            effects[self.names[event["account_id"]], event["idempotency_key"]].append(event)
        records = {(self.names[row["account_id"]], row["key"]): row for row in self.tables["idempotency_keys"]}
        for one in self.stored:
            gives_up, told = GIVES_UP.fullmatch(one["request"]["path"]), one["shown"]
            if not gives_up or "response_status" not in told:
                continue
            key = (one["request"]["account"], gives_up[1])
            began, ends = (datetime.fromtimestamp(told[name], UTC) for name in ("created", "expires"))
            outcome = (told["request"], told["response_status"])
            what = f"{key} was said to be {told['status']} by {outcome}"
            for answer in answers[key]:
                is_told = ((answer["execution"], answer["status"]) == outcome
                           and answer["given_up"] == (told["status"] == "abandoned"))
                if abs(datetime.fromisoformat(answer["expires"]) - ends) < self.retention - ROUNDING and not is_told:
                    self.violate("G10", f"{what}, and {answer['execution']} answered it with {answer['status']}")
            for event in effects[key] if told["status"] == "abandoned" else []:
                if abs(datetime.fromisoformat(event["created_at"]) - began) < self.window - ROUNDING:
                    self.violate("G10", f"{what}, and {event['request_id']} had an effect")
            row = records.get(key, {})
            if not self.expires and (row.get("request_id"), row.get("status")) != outcome:
                self.violate("G10", f"{what}, and {row.get('request_id')} is recorded with {row.get('status')}")

    def remembered(self):
        """G11: once a key has expired, each request with it is refused, and told what its one request made."""
        began, answers, refusals, effects = {}, defaultdict(list), defaultdict(list), defaultdict(list)
        for one in self.lines["invoke"]:
            at, gives_up = datetime.fromisoformat(one["at"]), GIVES_UP.fullmatch(one["request"]["path"])
            for name in {one["request"]["key"], gives_up[1] if gives_up else one["request"]["key"]}:
                key = (one["request"]["account"], name)
                began[key] = min(at, began.get(key, at))
        for one in self.stored:
            gives_up, (account, _) = GIVES_UP.fullmatch(one["request"]["path"]), one["key"]
            # Before its own key can have expired, it is about the one that it gives up.
            of_other = gives_up and self.is_early(one, began[one["key"]])
            if one["expired"]:
                refusals[(account, gives_up[1]) if of_other else one["key"]].append(one)
            if not one["expired"] or of_other:
                answers[one["key"]].append(one)
        for event in self.tables["events"]:
            if event["idempotency_key"] and not event["idempotency_key"].startswith(","):
                key = (self.names[event["account_id"]], event["idempotency_key"])
                effects[key].append((event["request_id"], event["object"]))
        ids = {name: id for id, name in self.names.items()}
        records = {(self.names[row["account_id"]], row["key"]) for row in self.tables["idempotency_keys"]}
        tombstones = {row["id"]: row["resource_id"] for row in self.tables["idempotency_tombstones"]}
        for key in {*answers, *refusals, *effects}:
            refused = {one["execution"]: one for one in refusals[key]}
            executed = {one["execution"]: one for one in answers[key]}
            if not self.memory:
                for execution in refused:
                    self.violate("G11", f"{key}: {execution} is refused as expired, and nothing is remembered")
                continue
            several = {*executed, *(request for request, _ in effects[key])}
            if len(several) > 1 or several & {*refused}:
                self.violate("G11", f"{key} was executed by {sorted(several)}, and refused by {sorted(refused)}")
            first = next(iter(executed.values()), None)
            made = self.may_name(first, effects[key])
            named = [(execution, one["shown"]["error"].get("resource")) for execution, one in refused.items()]
            tombstone = tombstone_id(ids[key[0]], key[1])
            named += [("the memory", tombstones[tombstone])] if tombstone in tombstones else []
            for by, name in named:
                if name not in made if made else first and name:
                    self.violate("G11", f"{key}: {by} names {name}, and not one of {sorted(made)}")
            for execution, one in refused.items():
                if self.is_early(one, began[key]):
                    self.violate("G11", f"{key}: {execution} was refused before the key can have expired")
            if key not in records and tombstone not in tombstones:
                self.violate("G11", f"{key} is neither recorded nor remembered")

    def is_early(self, refusal, began):
        """Whether a key that was used then can't have expired yet. The refusal's own record lives as long."""
        return datetime.fromisoformat(refusal["expires"]) - began < 2 * self.retention - ROUNDING

    def may_name(self, first, effects):
        """What a refusal may name of what the first request made: what it told, or else what it changed."""
        shown = first["shown"] if first else {}
        made = shown.get("id") or shown.get("sku")
        if made and first["status"] < 300:
            return {made}
        error = shown.get("error", {}) if first and first["status"] == 402 else {}
        declined = (error.get("charge"), error.get("payment_intent", {}).get("id"))
        return {id for _, id in effects} | {id for id in declined if id}


def main(arguments):
    paths = [pathlib.Path(one) for one in arguments]
    histories = sorted(paths[0].glob("*.history.jsonl*")) if len(paths) == 1 else paths[:1]
    if not histories:
        sys.exit(__doc__)
    wrong = 0
    for history in histories:
        run = Run(history, (paths + [history.with_name(history.name.replace(".history.", ".dump."))])[1])
        run.check()
        wrong += len(run.found)
        print(f"{run.run['profile']}: {len(run.sent)} keys, {len(run.lines['invoke'])} attempts, "
              f"{len(run.lines['fault'])} faults, {len(run.found)} violations of G1 to G6, G10 and G11")
        for rule, text in run.found:
            print(f"{rule}: {text}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
