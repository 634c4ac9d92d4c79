//! Where requests wait for the next batch, in turns by account.
//!
//! Promise: an account that others wait beside has half of the queue and half of each batch at
//! most.

use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use uuid::Uuid;

use crate::lock;

/// Requests in one batch: ten times more would make it hardly cheaper, and each longer.
pub(super) const BATCH_MAX: usize = 256;

/// What all requests of a batch may weigh together, in bytes of what they asked for. Each is
/// written about three times, and all of it is in memory.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// Requests that wait. At a thousand batches a second none waits long; when the database is slow,
/// those that come then had better be told at once.
const WAITING_MAX: usize = 4096;

pub(super) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    arrived: Notify,
}

impl<T> Queue<T> {
    /// Nothing waits for longer than `patience`.
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                accounts: HashMap::new(),
                turns: VecDeque::new(),
                count: 0,
                patience,
                closed: false,
            }),
            arrived: Notify::new(),
        }
    }

    /// Queues `item`, which weighs so many bytes. `false`: there is no room for it.
    pub(super) fn push(&self, account: Uuid, bytes: usize, item: T) -> bool {
        let has_room = lock(&self.waiting).push(account, bytes, item);
        self.arrived.notify_one();
        has_room
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.waiting).count
    }

    /// Takes the next batch as soon as anything waits. `None`: the queue is closed and empty.
    pub(super) async fn next(&self) -> Option<Taken<T>> {
        loop {
            let (taken, more, closed) = {
                let mut waiting = lock(&self.waiting);
                let late = waiting.take_late(Instant::now());
                let batch = waiting.take();
                let taken = Taken { batch, late };
                (taken, waiting.count > 0, waiting.closed)
            };
            if more || closed {
                // For another worker.
                self.arrived.notify_one();
            }
            if !taken.batch.is_empty() || !taken.late.is_empty() {
                return Some(taken);
            }
            if closed {
                return None;
            }
            self.arrived.notified().await;
        }
    }

    /// Ends the wait for batches, when all that waits has been taken.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.arrived.notify_one();
    }
}

struct Item<T> {
    bytes: usize,
    since: Instant,
    item: T,
}

pub(super) struct Taken<T> {
    /// For one batch.
    pub(super) batch: Vec<T>,
    /// Those that have waited for too long, wherever they were in the queue.
    pub(super) late: Vec<T>,
}

struct Waiting<T> {
    accounts: HashMap<Uuid, VecDeque<Item<T>>>,
    /// The accounts, in the order in which they are served.
    turns: VecDeque<Uuid>,
    count: usize,
    patience: Duration,
    closed: bool,
}

impl<T> Waiting<T> {
    fn push(&mut self, account: Uuid, bytes: usize, item: T) -> bool {
        let of_account = self.accounts.get(&account).map_or(0, VecDeque::len);
        let others = self.count - of_account;
        // An account that is alone leaves room for others to come.
        let share = if others == 0 {
            WAITING_MAX / 4 * 3
        } else {
            WAITING_MAX / 2
        };
        if self.count >= WAITING_MAX || of_account >= share {
            return false;
        }
        if of_account == 0 {
            self.turns.push_back(account);
        }
        let items = self.accounts.entry(account).or_default();
        items.push_back(Item {
            bytes,
            since: Instant::now(),
            item,
        });
        self.count += 1;
        true
    }

    /// Those that have waited for too long: the first ones of each account.
    fn take_late(&mut self, now: Instant) -> Vec<T> {
        let mut late = Vec::new();
        for items in self.accounts.values_mut() {
            while let Some(item) = items.pop_front() {
                if now.duration_since(item.since) <= self.patience {
                    items.push_front(item);
                    break;
                }
                late.push(item.item);
            }
        }
        if !late.is_empty() {
            self.count -= late.len();
            self.accounts.retain(|_, items| !items.is_empty());
            let accounts = &self.accounts;
            self.turns.retain(|account| accounts.contains_key(account));
        }
        late
    }

    /// One of each account in turn, until the batch is full.
    fn take(&mut self) -> Vec<T> {
        let share = if self.turns.len() > 1 {
            BATCH_MAX / 2
        } else {
            BATCH_MAX
        };
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut taken: HashMap<Uuid, usize> = HashMap::new();
        // Accounts that have their share of this batch, and more to do.
        let mut later = Vec::new();
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            let Some(account) = self.turns.pop_front() else {
                break;
            };
            let Some(items) = self.accounts.get_mut(&account) else {
                continue;
            };
            if let Some(item) = items.pop_front() {
                bytes += item.bytes;
                batch.push(item.item);
                self.count -= 1;
            }
            if items.is_empty() {
                self.accounts.remove(&account);
                continue;
            }
            let of_account = taken.entry(account).or_default();
            *of_account += 1;
            if *of_account < share {
                self.turns.push_back(account);
            } else {
                later.push(account);
            }
        }
        self.turns.extend(later);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Uuid = Uuid::from_u128(1);
    const MALLORY: Uuid = Uuid::from_u128(2);

    const PATIENCE: Duration = Duration::from_secs(1);

    fn with(counts: &[(Uuid, usize)]) -> Queue<Uuid> {
        let queue = Queue::new(PATIENCE);
        for (account, count) in counts {
            for _ in 0..*count {
                assert!(queue.push(*account, 1, *account));
            }
        }
        queue
    }

    fn of(account: Uuid, batch: &[Uuid]) -> usize {
        batch.iter().filter(|one| **one == account).count()
    }

    #[test]
    fn an_account_that_is_alone_fills_a_batch() {
        let queue = with(&[(MALLORY, 300)]);
        assert_eq!(lock(&queue.waiting).take().len(), BATCH_MAX);
        assert_eq!(lock(&queue.waiting).take().len(), 300 - BATCH_MAX);
        assert!(lock(&queue.waiting).take().is_empty());
    }

    #[test]
    fn an_account_has_half_of_a_batch_while_others_wait() {
        let queue = with(&[(MALLORY, 300), (ALICE, 3)]);
        let batch = lock(&queue.waiting).take();
        assert_eq!(of(ALICE, &batch), 3);
        assert_eq!(of(MALLORY, &batch), BATCH_MAX / 2);
        assert_eq!(batch.get(1), Some(&ALICE), "accounts take turns");
        // Alone again.
        assert_eq!(lock(&queue.waiting).take().len(), 300 - BATCH_MAX / 2);
    }

    #[test]
    fn an_account_has_half_of_the_queue_while_others_wait() {
        let queue = with(&[(ALICE, 1), (MALLORY, WAITING_MAX / 2)]);
        assert!(!queue.push(MALLORY, 1, MALLORY));
        assert!(queue.push(ALICE, 1, ALICE));
        let alone = with(&[(MALLORY, WAITING_MAX / 4 * 3)]);
        assert!(!alone.push(MALLORY, 1, MALLORY), "there is room for others");
        for _ in 0..WAITING_MAX / 4 {
            assert!(alone.push(ALICE, 1, ALICE));
        }
        assert!(!alone.push(ALICE, 1, ALICE), "the queue is bounded");
    }

    #[test]
    fn what_waited_for_too_long_is_taken_out_of_the_whole_queue() {
        let queue = with(&[(MALLORY, 300), (ALICE, 1)]);
        let later = Instant::now() + PATIENCE * 2;
        assert!(lock(&queue.waiting).take_late(Instant::now()).is_empty());
        assert_eq!(lock(&queue.waiting).take_late(later).len(), 301);
        assert!(lock(&queue.waiting).take().is_empty());
        assert_eq!(queue.len(), 0);
        assert!(queue.push(ALICE, 1, ALICE));
        assert_eq!(lock(&queue.waiting).take(), [ALICE]);
    }

    #[test]
    fn a_batch_ends_with_the_item_that_makes_it_too_heavy() {
        let queue = Queue::new(PATIENCE);
        for _ in 0..5 {
            assert!(queue.push(ALICE, BATCH_BYTES_MAX / 2, ALICE));
        }
        assert_eq!(lock(&queue.waiting).take().len(), 2);
    }
}
