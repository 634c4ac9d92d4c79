//! Faults on request, to show and test what a network and a processor can do wrong.
//!
//! Promise: a fault applies to the next `count` requests that match it, and to no other. A reset
//! also ends every running delay.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::Instruction;

/// The longest delay: longer than every lease and time limit that a test needs to exceed.
const DELAY_MAX_MILLISECONDS: u64 = 10 * 60 * 1000;

const FAULTS_MAX: usize = 1000;

/// Faults, in the order of a request's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    /// The request takes long to arrive, and its key is not known meanwhile.
    DelayArrival,
    /// An explicit "not executed".
    Refuse,
    /// An error without an outcome; not executed.
    ErrorBefore,
    /// The connection ends without a reply; not executed.
    DropBefore,
    /// The operation takes long; meanwhile the key is in progress.
    DelayBefore,
    /// The operation is executed, then the reply takes long.
    DelayAfter,
    /// Executed, then an error without an outcome.
    ErrorAfter,
    /// Executed, then the connection ends without a reply.
    DropAfter,
}

/// The requests that a fault applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Authorize,
    Capture,
    /// Refunds and releases.
    Refund,
    /// Look-ups. Only a fault that names them applies to them.
    LookUp,
}

impl Verb {
    pub(super) fn of(instruction: &Instruction) -> Self {
        match instruction {
            Instruction::Authorize { .. } => Self::Authorize,
            Instruction::Capture { .. } => Self::Capture,
            Instruction::Refund { .. } => Self::Refund,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultRule {
    pub(super) fault: Fault,
    /// The number of requests.
    #[serde(default = "once")]
    pub(super) count: u32,
    /// The requests; every instruction if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) verb: Option<Verb>,
    /// The length of a delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) milliseconds: Option<u64>,
}

fn once() -> u32 {
    1
}

impl FaultRule {
    fn is_for(&self, verb: Verb) -> bool {
        self.verb
            .map_or(verb != Verb::LookUp, |wanted| wanted == verb)
    }

    fn complaint(&self) -> Option<&'static str> {
        let is_delay = match self.fault {
            Fault::DelayArrival | Fault::DelayBefore | Fault::DelayAfter => true,
            Fault::Refuse
            | Fault::ErrorBefore
            | Fault::DropBefore
            | Fault::ErrorAfter
            | Fault::DropAfter => false,
        };
        match self.milliseconds {
            _ if self.count == 0 => Some("count must be at least 1"),
            None if is_delay => Some("a delay needs milliseconds"),
            Some(_) if !is_delay => Some("only a delay has milliseconds"),
            Some(long) if long > DELAY_MAX_MILLISECONDS => Some("milliseconds: at most 600000"),
            Some(_) | None => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) fault: Fault,
    delay: Duration,
    resets: watch::Receiver<u64>,
}

/// All faults that are set. They are in memory, and a restart removes them.
#[derive(Debug, Default)]
pub(super) struct Faults {
    waiting: Mutex<Vec<FaultRule>>,
    resets: watch::Sender<u64>,
    delaying: watch::Sender<u32>,
}

impl Faults {
    pub(super) fn set(&self, rule: FaultRule) -> Result<(), &'static str> {
        if let Some(complaint) = rule.complaint() {
            return Err(complaint);
        }
        let mut waiting = self.lock();
        if waiting.len() >= FAULTS_MAX {
            return Err("too many faults are set");
        }
        waiting.push(rule);
        Ok(())
    }

    pub(super) fn show(&self) -> (Vec<FaultRule>, u32) {
        let waiting = self.lock().clone();
        (waiting, *self.delaying.borrow())
    }

    pub(super) fn reset(&self) {
        let mut waiting = self.lock();
        waiting.clear();
        self.resets.send_modify(|resets| *resets += 1);
    }

    /// Uses the first fault that applies to `verb`.
    pub(super) fn take(&self, verb: Verb) -> Option<Ordered> {
        let mut waiting = self.lock();
        let at = waiting.iter().position(|rule| rule.is_for(verb))?;
        let rule = waiting.get_mut(at)?;
        let ordered = Ordered {
            fault: rule.fault,
            delay: Duration::from_millis(rule.milliseconds.unwrap_or_default()),
            // Under the lock, so that a later reset is seen.
            resets: self.resets.subscribe(),
        };
        rule.count -= 1;
        if rule.count == 0 {
            waiting.remove(at);
        }
        Some(ordered)
    }

    /// Waits if `ordered` is a delay at this point.
    pub(super) async fn delay(&self, ordered: &mut Option<Ordered>, point: Fault) {
        let Some(ordered) = ordered.as_mut().filter(|ordered| ordered.fault == point) else {
            return;
        };
        self.delaying.send_modify(|count| *count += 1);
        tokio::select! {
            () = tokio::time::sleep(ordered.delay) => {}
            _ = ordered.resets.changed() => {}
        }
        self.delaying.send_modify(|count| *count -= 1);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FaultRule>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
