//! Who gets the places, in which order, and how many.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

use uuid::Uuid;

use super::*;

const QUICK: Option<&Attempt> = Some(&after(200, 5));

const SLOW: Option<&Attempt> = Some(&after(200, 5_000));

const FAILED: Option<&Attempt> = Some(&after(500, 5));

const fn after(status: u16, duration_ms: i64) -> Attempt {
    Attempt {
        at: 0,
        response_status: Some(status),
        error: None,
        duration_ms,
        is_refused: false,
        retry_after: None,
        reply: None,
    }
}

fn account(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn endpoint(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// Account 1 has the endpoints 10, 11, …, account 2 has 20, 21, … They come in this order.
fn turns(endpoints: &[u128]) -> Turns {
    let mut turns = Turns::default();
    for number in endpoints {
        turns.add(account(number / 10), endpoint(*number));
    }
    turns
}

/// As if other accounts' quick endpoints had all places but so many.
fn leave(turns: &mut Turns, places: usize) {
    turns.sending.quick = 0;
    turns.sending.quick = SENDS_MAX - places - turns.sending.all();
}

fn turn(number: u128, places: usize) -> Turn {
    Turn {
        account_id: account(number / 10),
        endpoint_id: endpoint(number),
        places,
    }
}

fn places(dealt: &[Turn]) -> Vec<(u128, usize)> {
    let place = |turn: &Turn| (turn.endpoint_id.as_u128(), turn.places);
    dealt.iter().map(place).collect()
}

fn all_places<'t>(dealt: impl IntoIterator<Item = &'t Turn>) -> usize {
    dealt.into_iter().map(|turn| turn.places).sum()
}

fn end_all(turns: &mut Turns, dealt: &[Turn], ending: Option<&Attempt>) {
    for turn in dealt {
        turns.claimed(turn, turn.places);
        for _ in 0..turn.places {
            turns.end(turn.account_id, turn.endpoint_id, ending);
        }
    }
}

/// Deals and ends until a deal gives each endpoint as much as it can get.
fn warm_up(turns: &mut Turns, ending: Option<&Attempt>) -> Vec<Turn> {
    for _ in 0..2 * WINDOW_MAX {
        let dealt = turns.deal();
        end_all(turns, &dealt, ending);
    }
    turns.deal()
}

#[test]
fn accounts_take_turns_and_within_an_account_its_endpoints_do() {
    let mut turns = turns(&[10, 11, 20]);
    // Four at once to an endpoint that nothing is known about.
    assert_eq!(places(&turns.deal()), [(10, 4), (20, 4), (11, 4)]);
    assert!(turns.deal().is_empty(), "all windows are full");
}

#[test]
fn the_next_deal_goes_on_where_the_last_one_ended() {
    let mut turns = turns(&[]);
    for number in 1..=100 {
        turns.add(account(number), endpoint(number));
    }
    let dealt = turns.deal();
    assert_eq!(all_places(&dealt), SENDS_TO_UNPROVEN_MAX);
    // 192 places: one for each of a hundred, and a second one for the first 92.
    assert_eq!((dealt[91].places, dealt[92].places), (2, 1));
    turns.end(dealt[0].account_id, dealt[0].endpoint_id, None);
    assert_eq!(places(&turns.deal()), [(93, 1)]);
}

#[test]
fn an_account_that_had_nothing_comes_first_for_one_place() {
    let mut turns = turns(&[10, 20]);
    assert_eq!(places(&turns.deal()), [(10, 4), (20, 4)]);
    turns.add(account(3), endpoint(30));
    for number in [1, 2] {
        turns.end(account(number), endpoint(number * 10), None);
    }
    // One place each, and then it is the turn of those that have waited.
    leave(&mut turns, 2);
    assert_eq!(places(&turns.deal()), [(30, 1), (10, 1)]);
    leave(&mut turns, 1);
    assert_eq!(places(&turns.deal()), [(20, 1)]);
    // It had one event, and comes first with the next one too, behind others that had nothing.
    turns.claimed(&turn(30, 2), 1);
    for number in [40, 30] {
        turns.add(account(number / 10), endpoint(number));
    }
    turns.end(account(1), endpoint(10), None);
    leave(&mut turns, 2);
    assert_eq!(places(&turns.deal()), [(40, 1), (30, 1)]);
}

#[test]
fn accounts_that_wait_for_a_place_are_in_no_deal_s_way() {
    let mut turns = turns(&[]);
    for number in 0..1000 {
        turns.add(account(number), endpoint(number));
    }
    while !turns.deal().is_empty() {
        turns.sending = Sending::default();
    }
    assert!(turns.queues.is_empty(), "each has all that it may have");
    turns.sending.unproven = SENDS_TO_UNPROVEN_MAX;
    turns.end(account(7), endpoint(7), QUICK);
    assert_eq!(places(&turns.deal()), [(7, 2)]);
}

#[test]
fn a_fast_endpoint_gets_more_places_and_one_that_fails_a_single_one() {
    let mut fast = turns(&[10]);
    assert_eq!(places(&warm_up(&mut fast, QUICK)), [(10, WINDOW_MAX)]);
    // A fast one that has become slow gets no more than one that is unknown.
    end_all(&mut fast, &[turn(10, WINDOW_MAX)], SLOW);
    assert_eq!(places(&warm_up(&mut fast, SLOW)), [(10, WINDOW_FIRST)]);
    let mut dead = turns(&[10]);
    assert_eq!(places(&warm_up(&mut dead, FAILED)), [(10, 1)]);
    // One success, and it gets two.
    dead.end(account(1), endpoint(10), SLOW);
    assert_eq!(places(&dead.deal()), [(10, 2)]);
}

#[test]
fn an_account_has_a_limit_however_many_endpoints_it_has() {
    let mut turns = turns(&[10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
    let dealt = warm_up(&mut turns, QUICK);
    let of_one = |turn: &&Turn| turn.account_id == account(1);
    let (one, other): (Vec<_>, Vec<_>) = dealt.iter().partition(of_one);
    let sums = (all_places(one), all_places(other));
    assert_eq!(sums, (SENDS_PER_ACCOUNT_MAX, WINDOW_MAX));
}

/// A thousand endpoints of which each has failed so often that it gets one place, and the half of
/// the places that those may take, dealt.
fn failing() -> (Turns, Vec<Turn>) {
    let mut turns = turns(&[]);
    for number in 0..1000 {
        turns.add(account(number), endpoint(number));
    }
    loop {
        let dealt = turns.deal();
        let lanes = turns.lanes.values();
        let failing = lanes.filter(|lane| lane.standing() == Standing::Failing);
        if failing.count() == 1000 {
            return (turns, dealt);
        }
        end_all(&mut turns, &dealt, FAILED);
    }
}

#[test]
fn endpoints_that_fail_leave_half_of_the_places() {
    let (mut turns, dealt) = failing();
    assert!(dealt.iter().all(|turn| turn.places == 1));
    assert_eq!(dealt.len(), SENDS_TO_FAILING_MAX);
    assert!(turns.deal().is_empty());
    turns.add(account(2000), endpoint(2000));
    assert_eq!(places(&turns.deal()), [(2000, WINDOW_FIRST)]);
}

#[test]
fn endpoints_that_are_slow_or_unknown_leave_a_quarter_of_the_places_to_quick_ones() {
    let mut turns = turns(&[10]);
    let dealt = turns.deal();
    turns.claimed(&dealt[0], 1);
    turns.end(account(1), endpoint(10), QUICK);
    for number in 2..1000 {
        turns.add(account(number), endpoint(number * 10));
    }
    let dealt = turns.deal();
    assert_eq!(dealt.len(), SENDS_TO_UNPROVEN_MAX);
    turns.add(account(1), endpoint(10));
    assert_eq!(places(&turns.deal()), [(10, WINDOW_FIRST + 1)]);
    // Those that wait come in their order as places become free, slow or not.
    end_all(&mut turns, &dealt[..2], SLOW);
    let next = 10 * (2 + dealt.len() as u128);
    assert_eq!(places(&turns.deal()), [(next, 1), (next + 10, 1)]);
}

#[test]
fn endpoints_that_fail_take_turns_too() {
    let (mut turns, mut dealt) = failing();
    let mut seen: Vec<_> = dealt.iter().map(|turn| turn.endpoint_id).collect();
    for _ in 0..1000 - SENDS_TO_FAILING_MAX {
        // It has more that is ready, and waits until all others had their turn.
        end_all(&mut turns, &[dealt.remove(0)], FAILED);
        let next = turns.deal();
        assert_eq!(next.len(), 1);
        seen.extend(next.iter().map(|turn| turn.endpoint_id));
        dealt.extend(next);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 1000);
}

#[test]
fn an_endpoint_that_works_does_not_wait_for_one_of_its_account_that_fails() {
    let (mut turns, _) = failing();
    // The account waits for a place to fail.
    let waiting = *turns.queues.values().next().unwrap();
    turns.add(waiting, endpoint(2000));
    assert_eq!(places(&turns.deal()), [(2000, WINDOW_FIRST)]);
    turns.end(waiting, endpoint(2000), QUICK);
    assert_eq!(places(&turns.deal()), [(2000, 2)]);
}

#[test]
fn places_that_are_not_used_are_free_and_the_endpoint_has_nothing_more() {
    let mut turns = turns(&[10, 20]);
    let dealt = turns.deal();
    turns.claimed(&dealt[0], 1);
    turns.claimed(&dealt[1], 4);
    turns.end(dealt[0].account_id, dealt[0].endpoint_id, QUICK);
    assert!(turns.deal().is_empty());
    turns.end(dealt[1].account_id, dealt[1].endpoint_id, None);
    assert_eq!(places(&turns.deal()), [(20, 1)]);
    assert!(!turns.is_empty());
    // It is known again when it has something again, and only once.
    turns.add(dealt[0].account_id, dealt[0].endpoint_id);
    turns.add(dealt[0].account_id, dealt[0].endpoint_id);
    assert_eq!(places(&turns.deal()), [(10, 5)]);
}

/// As many as are remembered, each of another account.
fn full(turns: &mut Turns) {
    for number in 0..READY_MAX as u128 {
        turns.add(account(100 + number), endpoint(1000 + number));
    }
}

#[test]
fn a_quick_endpoint_is_served_though_more_wait_than_can_be_remembered() {
    let mut turns = turns(&[10]);
    let dealt = turns.deal();
    end_all(&mut turns, &dealt, QUICK);
    // It has nothing more for now.
    let dealt = turns.deal();
    turns.claimed(&dealt[0], 0);
    assert!(turns.is_empty());
    full(&mut turns);
    assert_eq!(turns.deal().len(), SENDS_TO_UNPROVEN_MAX);
    turns.add(account(1), endpoint(10));
    assert_eq!(places(&turns.deal())[0].0, 10);
}

#[test]
fn endpoints_that_are_not_quick_take_turns_though_more_wait_than_can_be_remembered() {
    let mut turns = Turns::default();
    full(&mut turns);
    let unknown = endpoint(1);
    turns.add(account(1), unknown);
    assert_eq!(turns.ready_endpoints, READY_MAX, "there is no room for it");
    let dealt = turns.deal();
    end_all(&mut turns, &dealt[..1], FAILED);
    // The one that has had a turn makes room for the one that a later look finds.
    turns.add(dealt[0].account_id, endpoint(2));
    assert_eq!(turns.ready_endpoints, READY_MAX);
    let is_remembered = |turns: &Turns, of: &Turn| {
        let ready = turns.ready.get(&of.account_id);
        ready.is_some_and(|ready| ready.endpoints.contains(&of.endpoint_id))
    };
    assert!(!is_remembered(&turns, &dealt[0]));
    // Where there is room, an endpoint that has had a turn stays.
    turns.claimed(&dealt[1], 0);
    end_all(&mut turns, &dealt[2..3], FAILED);
    assert!(is_remembered(&turns, &dealt[2]));
}

#[test]
fn the_windows_of_endpoints_without_attempts_are_forgotten_when_there_are_too_many() {
    let mut turns = turns(&[]);
    for number in 0..2 * LANES_MAX as u128 {
        turns.add(account(number), endpoint(number));
        for turn in turns.deal() {
            // One place is not used: it has nothing more.
            turns.claimed(&turn, turn.places - 1);
            for _ in 1..turn.places {
                turns.end(turn.account_id, turn.endpoint_id, FAILED);
            }
        }
    }
    assert!(turns.lanes.len() <= LANES_MAX + SENDS_MAX);
    assert_eq!(turns.sending.all(), 0);
    assert!(turns.sending_by_account.is_empty() && turns.is_empty());
    assert!(turns.queues.is_empty() && turns.ready.is_empty());
}
