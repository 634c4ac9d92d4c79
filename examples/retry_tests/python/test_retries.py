"""Proves the retry code of client.py against every fault that the server can be asked for."""

import os
import uuid

import pytest
from client import Client, Refused, Unknown

URL = os.environ.get("CHARGE_ONCE_URL", "http://127.0.0.1:8080")
DEV_API_KEY = os.environ.get("DEV_API_KEY", "sk_test_ChargeOnceDevelopmentKey00")

CHARGE = {"amount": 2000, "currency": "usd", "source": "tok_visa"}

FAULTS = [
    "reply_lost",
    "reply_lost; requests=3",
    "request_lost",
    "request_lost; requests=3",
    "delay; seconds=2; requests=2",
    "500; requests=2",
    "503; requests=2",
    "429; requests=2",
    "in_use; seconds=1",
]


@pytest.fixture
def api_key():
    """An account of the test's own, without any charge."""
    return Client(URL, DEV_API_KEY).post("/test/accounts", str(uuid.uuid4()), {})["api_key"]


def client(api_key, fault=None, **options):
    # Shorter than the delays above.
    headers = {"Fault": fault} if fault else {}
    return Client(URL, api_key, timeout=1.0, headers=headers, **options)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_charge_that_meets_a_fault_is_made_once(api_key, fault):
    charge = client(api_key, fault).charge("order-1", **CHARGE)
    assert charge["status"] == "succeeded"
    assert [made["id"] for made in client(api_key).charges()] == [charge["id"]]


def test_a_lost_reply_of_the_execution_is_found_again(api_key):
    charge = client(api_key).charge("order-1", **{**CHARGE, "source": "tok_lostReply"})
    assert [made["id"] for made in client(api_key).charges()] == [charge["id"]]


def test_two_faults_in_a_row(api_key):
    unlucky = client(api_key, "request_lost", attempts=1)
    with pytest.raises(Unknown):
        unlucky.charge("order-1", **CHARGE)
    charge = client(api_key, "reply_lost").charge("order-1", **CHARGE)
    assert [made["id"] for made in client(api_key).charges()] == [charge["id"]]


def test_what_is_not_known_is_not_called_a_failure(api_key):
    with pytest.raises(Unknown):
        client(api_key, "reply_lost; requests=100", attempts=2).charge("order-1", **CHARGE)
    # It was made: the same key says so.
    assert len(client(api_key).charges()) == 1
    client(api_key).charge("order-1", **CHARGE)
    assert len(client(api_key).charges()) == 1


def test_a_decline_is_an_answer_and_is_not_retried(api_key):
    declined = {**CHARGE, "source": "tok_chargeDeclined"}
    for fault in [None, "reply_lost"]:
        with pytest.raises(Refused) as refusal:
            client(api_key, fault).charge(f"order-{fault}", **declined)
        assert refusal.value.error["code"] == "card_declined"
    assert [made["status"] for made in client(api_key).charges()] == ["failed", "failed"]


def test_an_expired_key_is_a_new_charge(api_key):
    first = client(api_key).charge("order-1", **CHARGE)
    client(api_key).post("/test/expire_keys", str(uuid.uuid4()), {})
    second = client(api_key).charge("order-1", **CHARGE)
    assert first["id"] != second["id"]


class NewKeys(Client):
    """The mistake that this suite is for: a new key for each attempt."""

    def attempt(self, path, key, body):
        return super().attempt(path, str(uuid.uuid4()), body)


def test_the_suite_finds_a_client_that_makes_a_new_key_for_each_attempt(api_key):
    careless = NewKeys(URL, api_key, attempts=3, headers={"Fault": "reply_lost"})
    with pytest.raises(Unknown):
        careless.charge("order-1", **CHARGE)
    assert len(client(api_key).charges()) == 3
