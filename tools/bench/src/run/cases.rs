//! What is measured, in the order of the table.

use super::servers::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Alive,
    Create,
    /// The rows of a charge, in the transaction of a service without this project's library.
    Classic,
    /// The least that a charge under a key can be.
    Bare,
    Pay,
    PaySaved,
    Order,
    /// One cent of a random charge, whose row is locked.
    Refund,
    RefundOne,
    /// Captures of charges that were only promised.
    Capture,
    Customer,
    Declined,
    /// New charges with an amount that is refused. The refusal is stored like any outcome.
    Refused,
    ReplayOne,
    /// Keys at random, of [`REPLAYED`].
    ReplayMany,
    /// Keys at random, of [`STORED`].
    ReplayAll,
    InFlight,
    /// What a client does all day.
    Mixed,
}

/// Different keys that are replayed: their replies fit in a small cache.
pub(crate) const REPLAYED: u64 = 10_000;

/// All keys that are stored before the measurement. Their replies need a large cache.
pub(crate) const STORED: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) server: Server,
    pub(crate) work: Work,
    pub(crate) connections: usize,
}

/// New charges that are compared with pgbench and, at half of its rate, measured by the clock.
pub(crate) const PEAK: Case = case(Work::Create, 64);

/// What replays are compared with.
pub(crate) const ALIVE: Case = case(Work::Alive, 16);

pub(crate) const CASES: [Case; 37] = [
    ALIVE,
    case(Work::Create, 1),
    case(Work::Create, 8),
    case(Work::Create, 16),
    PEAK,
    case(Work::Create, 256),
    at(Server::WithoutBatches, Work::Create, 1),
    at(Server::WithoutBatches, Work::Create, 16),
    at(Server::WithoutBatches, Work::Create, 64),
    case(Work::Classic, 1),
    case(Work::Classic, 8),
    case(Work::Classic, 16),
    case(Work::Classic, 64),
    case(Work::Classic, 256),
    case(Work::Bare, 16),
    case(Work::Bare, 64),
    at(Server::Pair, Work::Create, 64),
    at(Server::Network, Work::Create, 16),
    case(Work::Pay, 16),
    at(Server::WithoutBatches, Work::Pay, 16),
    case(Work::PaySaved, 16),
    case(Work::Order, 16),
    case(Work::Refund, 1),
    case(Work::Refund, 16),
    at(Server::WithoutBatches, Work::Refund, 16),
    case(Work::RefundOne, 64),
    case(Work::Capture, 16),
    case(Work::Customer, 16),
    case(Work::Declined, 16),
    case(Work::Refused, 16),
    case(Work::ReplayOne, 64),
    case(Work::ReplayMany, 16),
    case(Work::ReplayMany, 64),
    at(Server::WithoutCache, Work::ReplayMany, 64),
    at(Server::LargeCache, Work::ReplayAll, 64),
    case(Work::InFlight, 64),
    case(Work::Mixed, 16),
];

/// Work at the server with the defaults.
pub(crate) const fn case(work: Work, connections: usize) -> Case {
    at(Server::Default, work, connections)
}

pub(crate) const fn at(server: Server, work: Work, connections: usize) -> Case {
    Case {
        server,
        work,
        connections,
    }
}

impl Case {
    pub(crate) fn name(self) -> String {
        format!("{}{}", self.work.name(), self.server.suffix())
    }
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Alive => "GET /livez",
            Self::Create => "POST /charges, new keys",
            Self::Classic => "pgbench: the same rows, one transaction",
            Self::Bare => "pgbench: two bare tables",
            Self::Pay => "POST /payment_intents, confirm, new keys",
            Self::PaySaved => "the same, of a customer's method",
            Self::Order => "POST /orders, new keys",
            Self::Refund => "POST /refunds, new keys",
            Self::RefundOne => "POST /refunds of one charge, new keys",
            Self::Capture => "POST /charges/{id}/capture, new keys",
            Self::Customer => "POST /customers, new keys",
            Self::Declined => "declined card, new keys: 402",
            Self::Refused => "invalid amount, new keys: stored 400",
            Self::ReplayOne => "replay of one key",
            Self::ReplayMany => "replay of 10,000 keys",
            Self::ReplayAll => "replay of 100,000 keys",
            Self::InFlight => "duplicates of a request in flight: 409",
            Self::Mixed => "70 % new charges, 20 % replays, 10 % lists",
        }
    }

    pub(crate) fn is_pgbench(self) -> bool {
        matches!(self, Self::Classic | Self::Bare)
    }

    /// Whether it is beside pgbench in the table.
    pub(crate) fn writes_a_charge(self) -> bool {
        matches!(self, Self::Create | Self::Bare)
    }

    /// Whether it is beside `GET /livez` in the table.
    pub(crate) fn is_replay(self) -> bool {
        matches!(self, Self::ReplayOne | Self::ReplayMany | Self::ReplayAll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_case_is_measured_twice_and_each_has_a_name_of_its_own() {
        for (number, one) in CASES.iter().enumerate() {
            for other in CASES.iter().skip(number + 1) {
                let shown = |case: &Case| (case.name(), case.connections);
                assert_ne!(shown(one), shown(other));
            }
        }
    }

    #[test]
    fn what_a_case_is_compared_with_is_measured_at_the_same_connections() {
        for one in CASES.iter().filter(|one| one.work.writes_a_charge()) {
            let beside = case(Work::Classic, one.connections);
            assert!(CASES.contains(&beside), "{one:?}");
        }
        assert!(CASES.contains(&ALIVE) && CASES.contains(&PEAK));
    }

    #[test]
    fn names_say_what_differs_from_the_defaults() {
        assert_eq!(PEAK.name(), "POST /charges, new keys");
        let name = at(Server::WithoutBatches, Work::Create, 1).name();
        assert_eq!(name, "POST /charges, new keys, BATCH=off");
        let name = at(Server::LargeCache, Work::ReplayAll, 64).name();
        assert_eq!(name, "replay of 100,000 keys, REPLAY_CACHE=256MiB");
    }
}
