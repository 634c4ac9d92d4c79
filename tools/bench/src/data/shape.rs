//! What the rows of a big database are, by their numbers.
//!
//! Promise: everything about row `n` follows from `n` and the file `shape.json`. So the load knows
//! every stored key, its request and its reply without reading the database.

use std::{fs, path::Path};

use anyhow::Context;
use charge_once_idempotency::{Fingerprint, FingerprintInput, Parameters};
use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

use crate::load::Call;

/// One account has a third of all rows; these have the rest, in equal parts.
pub(crate) const OTHER_ACCOUNTS: u64 = 1_000;

/// The rows were created over 30 days, at equal distances.
const SPAN_MICROS: u64 = 30 * 24 * 3_600 * MICROS;

const MICROS: u64 = 1_000_000;

/// One of so many charges is declined, as cards are.
const DECLINED_ONE_OF: u64 = 10;

/// An account's customers are so many fewer than its charges.
const CHARGES_PER_CUSTOMER: u64 = 100;

pub(crate) const ROWS_PER_ORDER: u64 = 100;

/// The file in a big database's folder. It is written last, so a folder without it is half done.
const FILE: &str = "shape.json";

/// How many rows there are, and when the newest one was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) rows: u64,
    /// Microseconds since 1970.
    pub(crate) until_micros: u64,
}

/// Which id of a row is meant: each is random by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Id {
    Charge = 1,
    Event = 2,
    Order = 3,
    Refund = 4,
    Request = 5,
    Delivery = 6,
    Operation = 7,
    Checkout = 8,
    Endpoint = 9,
}

impl Shape {
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join(FILE);
        let text = fs::read_to_string(&file).with_context(|| {
            let folder = folder.display();
            format!(
                "{folder} holds no finished database; make one with `tools/bench/measure big-data`"
            )
        })?;
        serde_json::from_str(&text).with_context(|| format!("{} can't be read", file.display()))
    }

    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let file = folder.join(FILE);
        let text = serde_json::to_string(self)?;
        fs::write(&file, text).with_context(|| format!("{} can't be written", file.display()))
    }

    /// 0 is the large account.
    pub(crate) fn account(&self, n: u64) -> u64 {
        let random = random(n, 101);
        match random % 3 {
            0 => 0,
            _ => 1 + (random >> 8) % OTHER_ACCOUNTS,
        }
    }

    pub(crate) fn api_key(&self, n: u64) -> String {
        api_key(self.account(n))
    }

    pub(crate) fn account_id(&self, account: u64) -> Uuid {
        let made = self.created_micros(0) - 24 * 3_600 * MICROS;
        uuid_v7(made, account, 102)
    }

    /// When the row was created, in microseconds since 1970. Rows are in the order of time, except
    /// the charges beyond the last row: those pay orders, at the time of every hundredth row.
    pub(crate) fn created_micros(&self, n: u64) -> u64 {
        let n = match n.checked_sub(self.rows) {
            Some(order) => order * ROWS_PER_ORDER,
            None => n,
        };
        let share = u128::from(SPAN_MICROS) * u128::from(n) / u128::from(self.rows.max(1));
        self.until_micros - SPAN_MICROS + u64::try_from(share).unwrap_or(0)
    }

    pub(crate) fn created_seconds(&self, n: u64) -> u64 {
        self.created_micros(n) / MICROS
    }

    pub(crate) fn id(&self, of: Id, n: u64) -> Uuid {
        uuid_v7(self.created_micros(n), n, of as u64)
    }

    pub(crate) fn is_declined(&self, n: u64) -> bool {
        random(n, 103).is_multiple_of(DECLINED_ONE_OF)
    }

    /// The first row from `n` on that was not declined.
    pub(crate) fn approved(&self, n: u64) -> u64 {
        (n..).find(|n| !self.is_declined(*n)).unwrap_or(n)
    }

    /// From one to some hundreds of dollars; small amounts are the most frequent.
    pub(crate) fn amount(&self, n: u64) -> u64 {
        let random = random(n, 104);
        100 + (random % 200) * ((random >> 16) % 200)
    }

    /// Some customers buy often: the first thousandth of them makes a tenth of the charges.
    pub(crate) fn customer(&self, n: u64) -> String {
        let customers = match self.account(n) {
            0 => self.rows / 3 / CHARGES_PER_CUSTOMER,
            _ => self.rows / 3 * 2 / OTHER_ACCOUNTS / CHARGES_PER_CUSTOMER,
        };
        let random = u128::from(random(n, 105) >> 44);
        // The cube of a share, in units of 2^-20.
        let cube = (random * random * random) >> 40;
        format!("cus_{:06}", (cube * u128::from(customers.max(1))) >> 20)
    }

    pub(crate) fn body(&self, n: u64) -> String {
        body(
            self.amount(n),
            &self.customer(n),
            &order_name(n),
            self.is_declined(n),
        )
    }

    pub(crate) fn replay(&self, n: u64) -> Call {
        Call {
            is_replay: true,
            ..self.create(n, key(n).to_string())
        }
    }

    /// A request like that of row `n`, with a key of its own.
    pub(crate) fn create(&self, n: u64, idempotency_key: String) -> Call {
        Call {
            method: hyper::Method::POST,
            path: PATH.to_owned(),
            api_key: self.api_key(n),
            idempotency_key: Some(idempotency_key),
            body: self.body(n).into_bytes(),
            status: if self.is_declined(n) { 402 } else { 201 },
            is_replay: false,
        }
    }
}

/// What the stored keys were used for.
pub(crate) const PATH: &str = "/charges";

/// The key of row `n`: a UUIDv4, as most clients use.
pub(crate) fn key(n: u64) -> Uuid {
    let bits = u128::from(random(n, 106)) << 64 | u128::from(random(n, 107));
    Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

pub(crate) fn card(is_declined: bool) -> &'static str {
    match is_declined {
        true => "tok_chargeDeclined",
        false => "tok_visa",
    }
}

/// The body of a request for a charge, in canonical JSON (RFC 8785).
pub(crate) fn body(amount: u64, customer: &str, order: &str, is_declined: bool) -> String {
    let source = card(is_declined);
    format!(
        r#"{{"amount":{amount},"currency":"usd","customer":"{customer}","description":"Order {order}","metadata":{{"order_id":"{order}"}},"source":"{source}"}}"#
    )
}

/// The client's own name of what charge `n` pays.
pub(crate) fn order_name(n: u64) -> String {
    format!("ord-{n:010}")
}

/// The API key of an account. It opens nothing but the data of a measurement.
pub(crate) fn api_key(account: u64) -> String {
    format!("sk_test_bench_{account:04}_{:016x}", random(account, 108))
}

/// What the program stores for a request with this body.
pub(crate) fn fingerprint(body: &[u8]) -> Fingerprint {
    Fingerprint::of(&FingerprintInput {
        method: "POST",
        path: PATH,
        query: Parameters::Canonical(b"{}"),
        media_type: "json",
        parameters: Parameters::Canonical(body),
    })
}

/// SplitMix64: the same number for the same row, and no pattern between rows.
pub(crate) fn random(n: u64, salt: u64) -> u64 {
    let mut bits = n
        .wrapping_add(salt.wrapping_mul(0xd1b5_4a32_d192_ed03))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The UUIDv7 that a machine would have made at that moment.
fn uuid_v7(micros: u64, n: u64, salt: u64) -> Uuid {
    let bits = u128::from(random(n, salt)) << 64 | u128::from(random(n, salt + 50));
    let bytes = bits.to_be_bytes();
    let mut random_bytes = [0; 10];
    random_bytes.copy_from_slice(bytes.first_chunk::<10>().unwrap_or(&[0; 10]));
    Builder::from_unix_timestamp_millis(micros / 1_000, &random_bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SHAPE: Shape = Shape {
        rows: 100_000,
        until_micros: 1_795_000_000 * MICROS,
    };

    #[test]
    fn an_id_is_a_uuid_v7_of_its_row_s_time_and_ids_sort_by_time() {
        let mut last = Uuid::nil();
        let mut seen = HashSet::new();
        for n in (0..SHAPE.rows).step_by(997) {
            let id = SHAPE.id(Id::Charge, n);
            assert_eq!(id.get_version_num(), 7);
            let milliseconds = id.as_u128() >> 80;
            assert_eq!(milliseconds, u128::from(SHAPE.created_micros(n) / 1_000));
            assert!(last < id);
            last = id;
            assert!(seen.insert(id) && seen.insert(SHAPE.id(Id::Event, n)));
        }
    }

    #[test]
    fn rows_fill_thirty_days_up_to_the_end() {
        let day = 24 * 3_600 * MICROS;
        assert_eq!(SHAPE.created_micros(0), SHAPE.until_micros - 30 * day);
        let middle = SHAPE.created_micros(SHAPE.rows / 2);
        assert_eq!(middle, SHAPE.until_micros - 15 * day);
        assert!(SHAPE.created_micros(SHAPE.rows - 1) < SHAPE.until_micros);
    }

    #[test]
    fn one_account_has_a_third_and_a_tenth_is_declined() {
        let count = |is: &dyn Fn(u64) -> bool| (0..SHAPE.rows).filter(|n| is(*n)).count();
        let large = count(&|n| SHAPE.account(n) == 0);
        assert!((32_500..34_200).contains(&large), "{large}");
        let of_one = count(&|n| SHAPE.account(n) == 7);
        assert!((30..110).contains(&of_one), "{of_one}");
        let declined = count(&|n| SHAPE.is_declined(n));
        assert!((9_500..10_500).contains(&declined), "{declined}");
        assert!((0..SHAPE.rows).all(|n| SHAPE.account(n) <= OTHER_ACCOUNTS));
    }

    #[test]
    fn few_customers_make_many_of_the_charges() {
        let of_the_large = (0..SHAPE.rows).filter(|n| SHAPE.account(*n) == 0);
        let customers: Vec<String> = of_the_large.map(|n| SHAPE.customer(n)).collect();
        let first = customers.iter().filter(|name| *name == "cus_000000");
        let (first, all) = (first.count(), customers.len());
        assert!(first > all / 10 && first < all / 5, "{first} of {all}");
        let different: HashSet<&String> = customers.iter().collect();
        assert!(different.len() > 300, "{}", different.len());
    }

    #[test]
    fn keys_are_different_uuids_of_version_4() {
        let keys: HashSet<Uuid> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        assert!(keys.iter().all(|key| key.get_version_num() == 4));
    }

    #[test]
    fn a_body_is_canonical_json() -> anyhow::Result<()> {
        for n in [0, 1, 99_999] {
            let body = SHAPE.body(n);
            let value: serde_json::Value = serde_json::from_str(&body)?;
            // serde_json sorts members by name, and so does RFC 8785.
            assert_eq!(value.to_string(), body);
        }
        Ok(())
    }
}
