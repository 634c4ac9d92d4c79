//! Which way a verb that moves money runs, and what follows from it for charges that exist.

use sqlx::PgConnection;

use super::{Draft, RowId};
use crate::{
    domain::{
        charge::Charge,
        ids::{AccountId, ChargeId},
    },
    idempotency::{Failure, Rejection},
    store::{self, operations::OpenWork},
};

/// How a verb that moves money runs. A function over rows knows it by [`Draft::processor`], and a
/// verb with `execute` and `begin` by which of them is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The processor is simulated in this process.
    OneTransaction,
    /// The processor is across a network.
    Phases,
}

/// Why a process that asks no processor can't go on with what needs one, and what a person does
/// about it.
pub const NO_PROCESSOR: &str =
    "PROCESSOR_URL is not set: start this server with the PROCESSOR_URL of that processor";

impl Mode {
    /// How a verb runs that asks this processor across a network, or none.
    pub(super) fn of(processor: Option<&str>) -> Self {
        match processor {
            None => Self::OneTransaction,
            Some(_) => Self::Phases,
        }
    }
}

/// Whether anything may be decided about the money of a charge that is locked.
pub(super) fn must_be_free(draft: &Draft<'_>, charge: &Charge) -> Result<(), Rejection> {
    let mode = Mode::of(draft.processor);
    // First: what is unfinished may be finished, and this never changes.
    must_have_taken_the_money(mode, charge)?;
    must_be_finished(mode, draft.open_work(RowId::Charge(charge.id)))
}

/// What is unfinished about a charge that this transaction has locked.
pub(super) async fn open_work(
    tx: &mut PgConnection,
    account: AccountId,
    charge: ChargeId,
) -> Result<OpenWork, sqlx::Error> {
    let found = store::charges::open_work(tx, &[(account, charge)]).await?;
    Ok(found.into_values().next().unwrap_or_default())
}

/// Money goes back through the processor that took it. The simulation can't return a processor's
/// money, and a processor doesn't know simulated charges.
pub(super) fn must_have_taken_the_money(mode: Mode, charge: &Charge) -> Result<(), Rejection> {
    let cause = match (mode, charge.processor.is_some()) {
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
