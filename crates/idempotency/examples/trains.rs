//! Seats of trains, each booked once: a verb that reads, decides and writes, in transactions that
//! requests share.
//!
//! ```text
//! reads       the seat, which is locked
//! decide      in memory: taken, or booked from now on
//! write       all bookings of the transaction, with one statement
//! ```
//!
//! ```sh
//! DATABASE_URL=postgres://… cargo run -p charge-once-idempotency --features batch --example trains
//! ```

use std::collections::HashMap;

use charge_once_idempotency::{
    BatchSettings, Batches, Decide, Decision, FingerprintInput, Idempotency, IdempotencyKey,
    Outcome, Parameters, Rejection, Reply, Request, Rows, SessionLimits, Settings, migrate,
    pin_session,
};
use chrono::{DateTime, Utc};
use sqlx::{
    Connection, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use uuid::Uuid;

/// Five seats of train 7.
pub const SCHEMA: &str = "
CREATE TABLE seats (
    train     integer NOT NULL,
    seat      integer NOT NULL,
    passenger uuid,
    PRIMARY KEY (train, seat)
);
INSERT INTO seats (train, seat) SELECT 7, seat FROM generate_series(1, 5) AS seat";

/// `POST /bookings`: books a seat of a train.
pub struct BookSeat {
    /// Train and seat.
    pub seat: (i32, i32),
    /// For whom.
    pub passenger: Uuid,
}

/// The seats of one transaction.
#[derive(Default)]
pub struct Seats {
    passengers: HashMap<(i32, i32), Option<Uuid>>,
    booked: Vec<(i32, i32)>,
}

impl Decide for BookSeat {
    type Rows = Seats;

    fn reads(&self, _: &Seats) -> Vec<(i32, i32)> {
        vec![self.seat]
    }

    /// A refusal changes nothing, and is stored like any other answer.
    fn decide(&self, seats: &Seats, _: DateTime<Utc>) -> Result<Decision<BookSeat>, Rejection> {
        let error = match seats.passengers.get(&self.seat) {
            Some(None) => {
                let Self { seat, passenger } = *self;
                let reply = Reply::raw_json(201, r#"{"object":"booking"}"#);
                let changes = Some(BookSeat { seat, passenger });
                return Ok(Decision { reply, changes });
            }
            Some(Some(_)) => r#"{"error":"seat_taken"}"#,
            None => r#"{"error":"no_such_seat"}"#,
        };
        Err(Rejection::Refused(Reply::raw_json(400, error)))
    }

    fn weight(&self) -> usize {
        size_of::<Self>()
    }
}

impl Rows for Seats {
    type Name = (i32, i32);
    type Changes = BookSeat;

    /// In the order of the index, so that two transactions never wait for each other in a circle.
    async fn read(
        &mut self,
        tx: &mut PgConnection,
        names: Vec<(i32, i32)>,
    ) -> Result<(), sqlx::Error> {
        let (trains, seats): (Vec<_>, Vec<_>) = names.into_iter().unzip();
        let read: Vec<(i32, i32, Option<Uuid>)> = sqlx::query_as(
            "SELECT train, seat, passenger
               FROM UNNEST($1::integer[], $2::integer[]) AS wanted (train, seat)
               JOIN seats USING (train, seat)
              ORDER BY train, seat
                FOR NO KEY UPDATE OF seats",
        )
        .bind(trains)
        .bind(seats)
        .fetch_all(tx)
        .await?;
        for (train, seat, passenger) in read {
            self.passengers.insert((train, seat), passenger);
        }
        Ok(())
    }

    /// Those that decide next see that the seat is taken.
    fn apply(&mut self, BookSeat { seat, passenger }: BookSeat) {
        self.passengers.insert(seat, Some(passenger));
        self.booked.push(seat);
    }

    async fn write(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        let passenger = |seat| self.passengers.get(seat).copied().flatten();
        let passengers: Vec<_> = self.booked.iter().map(passenger).collect();
        let (trains, seats): (Vec<_>, Vec<_>) = self.booked.iter().copied().unzip();
        let written = sqlx::query(
            "UPDATE seats SET passenger = booked.passenger
               FROM UNNEST($1::integer[], $2::integer[], $3::uuid[])
                    AS booked (train, seat, passenger)
              WHERE seats.train = booked.train AND seats.seat = booked.seat",
        )
        .bind(&trains)
        .bind(seats)
        .bind(passengers)
        .execute(tx)
        .await?;
        match written.rows_affected() == trains.len() as u64 {
            true => Ok(()),
            false => Err(sqlx::Error::RowNotFound),
        }
    }
}

/// Books a seat for a passenger, who sent this key.
pub async fn book(
    batches: &Batches<Seats>,
    passenger: Uuid,
    key: &str,
    seat: (i32, i32),
) -> Result<Outcome, Box<dyn std::error::Error + Send + Sync>> {
    let body = format!(r#"{{"seat":{},"train":{}}}"#, seat.1, seat.0);
    let input = FingerprintInput {
        method: "POST",
        path: "/bookings",
        query: Parameters::Canonical(b"{}"),
        media_type: "json",
        parameters: Parameters::Canonical(body.as_bytes()),
    };
    let key = IdempotencyKey::parse(key.as_bytes())?;
    let request = Request::new(passenger, key, &input);
    Ok(batches.run(request, BookSeat { seat, passenger }).await)
}

/// Makes the tables, and what runs requests in batches.
pub async fn set_up(options: PgConnectOptions) -> Result<Batches<Seats>, sqlx::error::BoxDynError> {
    let mut connection = PgConnection::connect_with(&options).await?;
    let schema = migrate(&mut connection).await?;
    sqlx::raw_sql(SCHEMA).execute(&mut connection).await?;
    let pool = PgPoolOptions::new()
        .connect_with(pin_session(options, &schema, SessionLimits::default()))
        .await?;
    let idempotency = Idempotency::new(pool, Settings::default())?;
    Ok(Batches::new(&idempotency, BatchSettings::default()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let batches = set_up(std::env::var("DATABASE_URL")?.parse()?).await?;
    let (alice, bob) = (Uuid::now_v7(), Uuid::now_v7());
    // Both want the same seat, and their requests share a transaction, or follow each other.
    let (of_alice, of_bob) = tokio::join!(
        book(&batches, alice, "one", (7, 1)),
        book(&batches, bob, "one", (7, 1))
    );
    let again = book(&batches, alice, "one", (7, 1)).await;
    for (who, outcome) in [("alice", of_alice), ("bob", of_bob), ("alice again", again)] {
        let outcome = outcome?;
        if let Outcome::Stored { record, .. } = outcome {
            let body = String::from_utf8_lossy(&record.reply.body);
            println!("{who}: {} {body}", record.reply.status);
        } else {
            println!("{who}: {outcome:?}");
        }
    }
    Ok(())
}
