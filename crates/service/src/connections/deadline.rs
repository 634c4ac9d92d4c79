//! A moment that a task waits for, beside something else.

use std::{future::Future, pin::Pin, task::Context};

use tokio::time::{Instant, Sleep, sleep_until};

/// A moment, if one is set, that wakes its task.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    /// `None`: nothing ever passes.
    pub(super) at: Option<Instant>,
    /// Rings at `at` or earlier. It is set again when it has rung, because that is rare: a deadline
    /// moves with every request.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Whether it has passed. If not, the task is woken then.
    pub(super) fn poll_passed(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.at else { return false };
        // The alarm stays silent for a task that has done much since it was woken.
        if at <= Instant::now() {
            return true;
        }
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if alarm.deadline() > at {
            alarm.as_mut().reset(at);
        }
        while alarm.as_mut().poll(cx).is_ready() {
            if alarm.deadline() == at {
                return true;
            }
            alarm.as_mut().reset(at);
        }
        false
    }
}
