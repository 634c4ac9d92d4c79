//! Whether anything may be decided about money that exists already.

use crate::commands::prelude::*;

/// Why a process that asks no processor can't go on with what needs one, and what a person does
/// about it.
pub const NO_PROCESSOR: &str =
    "PROCESSOR_URL is not set: start this server with the PROCESSOR_URL of that processor";

/// Whether anything may be decided about the money of a charge that is locked.
pub(super) fn must_be_free(draft: &Draft<'_>, charge: &Charge) -> Result<(), Rejection> {
    // First: what is unfinished may be finished, and this never changes. A pending charge has no
    // processor yet, whichever is asked.
    if charge.status != ChargeStatus::Pending {
        must_have_taken_the_money(draft, charge)?;
    }
    must_be_finished(draft, RowId::Charge(charge.id))
}

/// Money goes back through the processor that took it. The simulation can't return a processor's
/// money, and a processor doesn't know simulated charges.
pub(super) fn must_have_taken_the_money(
    draft: &Draft<'_>,
    charge: &Charge,
) -> Result<(), Rejection> {
    let cause = match (draft.server.processor.is_some(), charge.processor.is_some()) {
        (false, false) | (true, true) => return Ok(()),
        (false, true) => {
            format!("the charge was made by a processor across a network, and {NO_PROCESSOR}")
        }
        (true, false) => {
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
pub(super) fn must_be_finished(draft: &Draft<'_>, row: RowId) -> Result<(), Rejection> {
    let open = draft.open_work(row);
    if open.operation && draft.server.processor.is_none() {
        return Err(Rejection::Failed(Failure::unsupported(format!(
            "another operation on this object is unfinished with a processor across a network, and \
             {NO_PROCESSOR}, or see `charge-once operations list`"
        ))));
    }
    must_not_wait(open)
}

/// Fails while something is unfinished, whichever way this process runs.
pub(super) fn must_not_wait(open: OpenWork) -> Result<(), Rejection> {
    if open.operation || open.checkout {
        let busy = "another operation on this object is unfinished";
        return Err(Rejection::Failed(Failure::busy(busy)));
    }
    Ok(())
}
