//! Which way a verb that moves money runs, and what follows from it for charges that exist.

use sqlx::PgConnection;

use crate::{
    domain::{
        ids::{AccountId, ChargeId},
        refund::RefundStatus,
    },
    idempotency::{Failure, Rejection},
    store::{self, charges::ChargeLinks, operations::OpenWork},
};

/// How a verb that moves money runs: a verb with `execute` and `begin` knows it by which of them is
/// called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// By `execute`: the processor is simulated in this process.
    OneTransaction,
    /// By `begin`: it is across a network.
    Phases,
}

/// Why a process that asks no processor can't go on with what needs one, and what a person does
/// about it.
pub const NO_PROCESSOR: &str =
    "PROCESSOR_URL is not set: start this server with the PROCESSOR_URL of that processor";

impl Mode {
    /// The status of a refund when it is written.
    pub(super) fn of_refund(self) -> RefundStatus {
        match self {
            Self::OneTransaction => RefundStatus::Succeeded,
            Self::Phases => RefundStatus::Pending,
        }
    }
}

/// Whether anything may be decided about the money of a charge that this transaction has locked.
pub(super) async fn must_be_free(
    tx: &mut PgConnection,
    account: AccountId,
    charge: ChargeId,
    mode: Mode,
) -> Result<(), Rejection> {
    let links = store::charges::links(tx, account, charge).await?;
    // First: what is unfinished may be finished, and this never changes.
    must_have_taken_the_money(mode, &links)?;
    must_be_finished(mode, links.open)
}

/// Money goes back through the processor that took it. The simulation can't return a processor's
/// money, and a processor doesn't know simulated charges.
pub(super) fn must_have_taken_the_money(mode: Mode, links: &ChargeLinks) -> Result<(), Rejection> {
    let cause = match (mode, links.is_across_a_network) {
        (Mode::OneTransaction, false) | (Mode::Phases, true) => return Ok(()),
        (Mode::OneTransaction, true) => {
            format!("the charge was made by a processor across a network, and {NO_PROCESSOR}")
        }
        (Mode::Phases, false) => {
            "the charge was simulated, and PROCESSOR_URL is set: send the request to a server \
             without it"
                .to_owned()
        }
    };
    Err(Rejection::Failed(Failure::unsupported(cause)))
}

/// While the processor has not answered, no other request may decide about the same money: a
/// refusal is stored, so it must rest on facts that stay.
///
/// A process that asks no processor never finishes what one that did has left, so waiting for it
/// can't help.
pub(super) fn must_be_finished(mode: Mode, open: OpenWork) -> Result<(), Rejection> {
    let failure = if open.operation && mode == Mode::OneTransaction {
        Failure::unsupported(format!(
            "another operation on this object is unfinished with a processor across a network, and \
             {NO_PROCESSOR}, or see `charge-once operations list`"
        ))
    } else if open.operation || open.checkout {
        Failure::busy("another operation on this object is unfinished")
    } else {
        return Ok(());
    };
    Err(Rejection::Failed(failure))
}
