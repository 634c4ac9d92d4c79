//! Whether clients may ask for faults.

use super::source::Source;

/// Refused together with PROCESSOR_URL: faults are for the simulated cards of this process.
pub(super) fn allowed(source: &Source<'_>) -> Option<bool> {
    const VARIABLE: &str = "FAULTS";
    let allowed = source.truth(VARIABLE)?;
    if allowed && source.optional("PROCESSOR_URL").is_some() {
        let expected = "false where PROCESSOR_URL is set: unset PROCESSOR_URL to try faults with the \
                        simulated processor of this process";
        return source.bad(VARIABLE, expected);
    }
    Some(allowed)
}
