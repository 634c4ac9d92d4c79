//! The client library and `charge-once pay`.

mod calls;
mod checkouts;
mod giving_up;
mod key_stores;
mod pay;
mod retries;

use charge_once_client::{
    AttemptFailure, Client, ClientBuilder, Clock, Error, FileKeyStore, ListQuery, NewCharge,
    Reason, Resumed, RetryPolicy,
};

use crate::support::{
    client_library::{
        NEVER_AGAIN, SECOND, START, TestClock, a_cart, an_endpoint, an_order, assert_all_alike,
        builder, files, gave_up, keeping, payment, resume_one, sent, store,
    },
    prelude::*,
};
