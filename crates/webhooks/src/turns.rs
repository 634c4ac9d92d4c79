//! Whose turn it is to be sent webhooks, and how many at once. No I/O.
//!
//! Promise: accounts take turns, and within an account its endpoints do, so that a backlog waits
//! for itself and delays nothing else. Everything is bounded: what is under way in all, for an
//! account and for an endpoint, and what is remembered.

use std::collections::{BTreeMap, HashMap, VecDeque};

use uuid::Uuid;

use crate::{Attempt, Turn};

/// Attempts that one replica makes at once. They hold no connection to the database, only memory
/// and a socket each.
pub const SENDS_MAX: usize = 256;

/// The part of them that may belong to one account.
const SENDS_PER_ACCOUNT_MAX: usize = 64;

/// The part of them that may go to endpoints that are not known to be quick. However many endpoints
/// are silent, or acknowledge slowly, a quarter of the places is left for the quick ones.
const SENDS_TO_UNPROVEN_MAX: usize = SENDS_MAX / 4 * 3;

/// The part of those that may go to endpoints that fail. However many these are, half of the places
/// are left for those that answer, and for those of which nothing is known yet.
const SENDS_TO_FAILING_MAX: usize = SENDS_MAX / 2;

/// Attempts at once to an endpoint of which nothing is known yet.
const WINDOW_FIRST: usize = 4;

/// Attempts at once to an endpoint that acknowledges quickly. They are marked and claimed together,
/// so this is also how many one transaction moves for one endpoint.
const WINDOW_MAX: usize = 64;

/// An acknowledgment that takes longer is no reason to send more at once.
const QUICK_MAX_MS: i64 = 1_000;

/// Endpoints with something ready that are remembered. Where there are more, only those that are
/// known to be quick are added, and any other is forgotten when it has had a turn, for one that a
/// later look finds. So silent endpoints take turns, however many they are, and delay no quick one.
const READY_MAX: usize = 10_000;

/// Endpoints whose windows are remembered. A forgotten one begins again with the first.
const LANES_MAX: usize = 10_000;

/// What is known of an endpoint. A later one has fewer places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It acknowledged the last event quickly.
    Quick,
    /// It did not, or nothing is known of it.
    Unproven,
    /// It has failed so often that its window is one.
    Failing,
}

#[derive(Debug)]
struct Lane {
    sending: usize,
    // One more for each quick success, and half as many after a failure: a silent endpoint soon
    // holds one place, a slow one a few, and a fast one gets as many as it can use.
    window: usize,
    was_quick: bool,
}

impl Lane {
    fn standing(&self) -> Standing {
        match self.window {
            1 => Standing::Failing,
            _ if self.was_quick => Standing::Quick,
            _ => Standing::Unproven,
        }
    }

    fn learn(&mut self, attempt: &Attempt) {
        self.was_quick = attempt.succeeded() && attempt.duration_ms <= QUICK_MAX_MS;
        self.window = if !attempt.succeeded() {
            (self.window / 2).max(1)
        } else if self.was_quick {
            (self.window + 1).min(WINDOW_MAX)
        } else if self.window > WINDOW_FIRST {
            self.window - 1
        } else {
            (self.window + 1).min(WINDOW_FIRST)
        };
    }
}

/// The attempts under way to the endpoints of each standing.
#[derive(Debug, Default)]
struct Sending {
    quick: usize,
    unproven: usize,
    failing: usize,
}

impl Sending {
    fn all(&self) -> usize {
        self.quick + self.unproven + self.failing
    }

    fn of(&mut self, standing: Standing) -> &mut usize {
        match standing {
            Standing::Quick => &mut self.quick,
            Standing::Unproven => &mut self.unproven,
            Standing::Failing => &mut self.failing,
        }
    }

    /// How many more may go to endpoints of this standing.
    fn room_for(&self, standing: Standing) -> usize {
        let for_all = SENDS_MAX.saturating_sub(self.all());
        let not_quick = SENDS_TO_UNPROVEN_MAX.saturating_sub(self.unproven + self.failing);
        let failing = SENDS_TO_FAILING_MAX.saturating_sub(self.failing);
        match standing {
            Standing::Quick => for_all,
            Standing::Unproven => for_all.min(not_quick),
            Standing::Failing => for_all.min(not_quick).min(failing),
        }
    }
}

/// Where an account waits. Each is in one place, so a deal costs what it deals, however many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Queue {
    /// For its first place.
    New,
    /// For its next place.
    Turn,
    /// For a place that an endpoint of this standing may have: all of them are taken.
    Room(Standing),
}

#[derive(Debug, Default)]
struct Account {
    // At least one.
    endpoints: VecDeque<Uuid>,
    // None: it has all that it may have, and waits for one of its own attempts to end.
    waits: Option<(Queue, u64)>,
}

/// What [`Turns::take_place`] finds.
enum Place {
    /// One for this endpoint.
    Taken(Uuid),
    /// The account, or each of its endpoints, has all that it may have.
    None,
    /// Only endpoints of this standing, or a later one, may have more, and there is no room for
    /// them.
    NoRoom(Standing),
}

/// The endpoints that have something ready, in their order, and what is under way.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    ready: HashMap<Uuid, Account>,
    // In the order of the numbers, which are the order in which accounts began to wait.
    queues: BTreeMap<(Queue, u64), Uuid>,
    next_number: u64,
    ready_endpoints: usize,
    lanes: HashMap<Uuid, Lane>,
    sending_by_account: HashMap<Uuid, usize>,
    sending: Sending,
}

impl Turns {
    pub(crate) fn is_empty(&self) -> bool {
        self.ready_endpoints == 0
    }

    fn is_full(&self) -> bool {
        self.ready_endpoints >= READY_MAX
    }

    /// An endpoint has something ready. It comes last in its account. An account that had nothing
    /// comes first, for one place, so that a single event does not wait until all backlogs have had
    /// a turn; but not for an endpoint that fails, of which there may be many. `false`: there is no
    /// room for it.
    pub(crate) fn add(&mut self, account: Uuid, endpoint: Uuid) -> bool {
        let lane = self.lanes.get(&endpoint);
        let standing = lane.map_or(Standing::Unproven, Lane::standing);
        let known = self.ready.get(&account);
        if known.is_some_and(|known| known.endpoints.contains(&endpoint)) {
            return true;
        }
        if self.is_full() && standing != Standing::Quick {
            return false;
        }
        let endpoints = &mut self.ready.entry(account).or_default().endpoints;
        let is_new = endpoints.is_empty();
        endpoints.push_back(endpoint);
        self.ready_endpoints += 1;
        match (is_new, standing) {
            (true, Standing::Quick | Standing::Unproven) => self.wait(account, Queue::New),
            (true, Standing::Failing) => self.wait(account, Queue::Room(standing)),
            (false, _) => self.wake(account, standing),
        }
        true
    }

    /// Deals the free places, one by one: to the next account, and within it to its next endpoint.
    /// They are taken until [`Turns::claimed`] and [`Turns::end`] free them.
    pub(crate) fn deal(&mut self) -> Vec<Turn> {
        let mut turns: Vec<Turn> = Vec::new();
        let mut at = HashMap::new();
        while self.sending.all() < SENDS_MAX
            && let Some(account_id) = self.next()
        {
            let endpoint_id = match self.take_place(account_id) {
                Place::Taken(endpoint_id) => endpoint_id,
                Place::None => {
                    self.leave(account_id);
                    continue;
                }
                Place::NoRoom(standing) => {
                    self.wait(account_id, Queue::Room(standing));
                    continue;
                }
            };
            self.leave(account_id);
            self.wait(account_id, Queue::Turn);
            let next = turns.len();
            let at = *at.entry(endpoint_id).or_insert(next);
            match turns.get_mut(at) {
                Some(turn) => turn.places += 1,
                None => turns.push(Turn {
                    account_id,
                    endpoint_id,
                    places: 1,
                }),
            }
        }
        turns
    }

    /// Of the places that a turn was dealt, `taken` are used. If that is fewer, the endpoint has
    /// nothing more that is ready.
    pub(crate) fn claimed(&mut self, turn: &Turn, taken: usize) {
        for _ in taken..turn.places {
            self.end(turn.account_id, turn.endpoint_id, None);
        }
        if taken < turn.places {
            self.forget(turn.account_id, turn.endpoint_id);
        }
    }

    /// An endpoint is not known to have something ready any more.
    fn forget(&mut self, account_id: Uuid, endpoint: Uuid) {
        let Some(account) = self.ready.get_mut(&account_id) else {
            return;
        };
        let Some(at) = account.endpoints.iter().position(|one| *one == endpoint) else {
            return;
        };
        account.endpoints.remove(at);
        self.ready_endpoints -= 1;
        if account.endpoints.is_empty() {
            self.leave(account_id);
            self.ready.remove(&account_id);
        }
    }

    /// A place is free. `None`: no attempt was made, or it broke off, so nothing is learned of the
    /// endpoint.
    pub(crate) fn end(&mut self, account: Uuid, endpoint: Uuid, attempt: Option<&Attempt>) {
        let mut had_all = false;
        if let Some(sending) = self.sending_by_account.get_mut(&account) {
            had_all = *sending == SENDS_PER_ACCOUNT_MAX;
            *sending -= 1;
            if *sending == 0 {
                self.sending_by_account.remove(&account);
            }
        }
        let Some(lane) = self.lanes.get_mut(&endpoint) else {
            return;
        };
        *self.sending.of(lane.standing()) -= lane.sending;
        lane.sending -= 1;
        if let Some(attempt) = attempt {
            lane.learn(attempt);
        }
        let standing = lane.standing();
        *self.sending.of(standing) += lane.sending;
        let is_idle = lane.sending == 0;
        if is_idle && self.lanes.len() > LANES_MAX {
            self.lanes.remove(&endpoint);
        }
        if is_idle && self.is_full() && standing != Standing::Quick {
            self.forget(account, endpoint);
        }
        // An account that had all of its places may use this one for any of its endpoints.
        self.wake(account, if had_all { Standing::Quick } else { standing });
    }

    /// An account that waits may have a place again, but only for an endpoint of this standing.
    fn wake(&mut self, account: Uuid, standing: Standing) {
        let waits = self.ready.get(&account).and_then(|account| account.waits);
        let is_there = match waits {
            Some((Queue::New | Queue::Turn, _)) => true,
            Some((Queue::Room(of), _)) => of <= standing,
            None => false,
        };
        if !is_there {
            let queue = match standing {
                Standing::Quick => Queue::Turn,
                Standing::Unproven | Standing::Failing => Queue::Room(standing),
            };
            self.wait(account, queue);
        }
    }

    /// Puts an account into a queue. It keeps its number if it is in another one.
    fn wait(&mut self, id: Uuid, queue: Queue) {
        let Some(account) = self.ready.get_mut(&id) else {
            return;
        };
        let number = match account.waits {
            Some(waits) => {
                self.queues.remove(&waits);
                waits.1
            }
            None => {
                self.next_number += 1;
                self.next_number
            }
        };
        account.waits = Some((queue, number));
        self.queues.insert((queue, number), id);
    }

    fn leave(&mut self, id: Uuid) {
        if let Some(account) = self.ready.get_mut(&id)
            && let Some(waits) = account.waits.take()
        {
            self.queues.remove(&waits);
        }
    }

    /// The account that has waited for the longest, of those that may get a place now.
    fn next(&self) -> Option<Uuid> {
        let first_in = |queue| self.queues.range((queue, 0)..=(queue, u64::MAX)).next();
        let for_room = [Standing::Unproven, Standing::Failing]
            .into_iter()
            .filter(|standing| self.sending.room_for(*standing) > 0)
            .map(Queue::Room);
        let longest = std::iter::once(Queue::Turn)
            .chain(for_room)
            .filter_map(first_in)
            .min_by_key(|((_, number), _)| *number);
        first_in(Queue::New)
            .or(longest)
            .map(|(_, account)| *account)
    }

    /// Takes a place for the account's next endpoint that may have one more.
    fn take_place(&mut self, id: Uuid) -> Place {
        let sending = self.sending_by_account.get(&id).copied();
        let sending = sending.unwrap_or_default();
        let Some(account) = self.ready.get_mut(&id) else {
            return Place::None;
        };
        if sending >= SENDS_PER_ACCOUNT_MAX {
            return Place::None;
        }
        let mut without_room: Option<Standing> = None;
        for _ in 0..account.endpoints.len() {
            account.endpoints.rotate_left(1);
            let Some(endpoint) = account.endpoints.back().copied() else {
                break;
            };
            let lane = self.lanes.entry(endpoint).or_insert(Lane {
                sending: 0,
                window: WINDOW_FIRST,
                was_quick: false,
            });
            let standing = lane.standing();
            if lane.sending >= lane.window {
                continue;
            }
            if self.sending.room_for(standing) == 0 {
                without_room = Some(without_room.map_or(standing, |known| known.min(standing)));
                continue;
            }
            lane.sending += 1;
            *self.sending.of(standing) += 1;
            self.sending_by_account.insert(id, sending + 1);
            return Place::Taken(endpoint);
        }
        without_room.map_or(Place::None, Place::NoRoom)
    }
}

#[cfg(test)]
mod tests;
