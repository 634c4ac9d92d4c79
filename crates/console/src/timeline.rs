//! Requests as bars on one axis of time, drawn on the server.
//!
//! Promise: a bar is as long as its request took. Where nothing happened for long, the axis is cut,
//! and a line says so.

use maud::{Markup, html};

/// The axis is so wide, in its own units.
const WIDTH: i64 = 1000;

/// The narrowest part of a bar that can be seen.
const SEEN: i64 = 8;

/// From when to when something took, in microseconds.
pub(super) type Span = (i64, i64);

/// An axis of time that has all of some spans.
pub(super) struct Axis {
    /// Where something happened, in order, each with how much of the axis is before it.
    busy: Vec<(Span, i64)>,
    /// How long the axis is, in microseconds that are shown.
    length: i64,
}

impl Axis {
    pub(super) fn of(spans: &[Span]) -> Self {
        let mut sorted: Vec<Span> = spans
            .iter()
            .map(|(from, to)| (*from, (*to).max(from + 1)))
            .collect();
        sorted.sort_unstable();
        let mut merged: Vec<Span> = Vec::new();
        for (from, to) in sorted {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        // A pause is at most a quarter as long as everything that happened.
        let pause_max = (merged.iter().map(|(from, to)| to - from).sum::<i64>() / 4).max(1);
        let (mut length, mut end): (i64, Option<i64>) = (0, None);
        let mut busy = Vec::new();
        for (from, to) in merged {
            length += end.map_or(0, |end| (from - end).min(pause_max));
            busy.push(((from, to), length));
            length += to - from;
            end = Some(to);
        }
        Self { busy, length }
    }

    /// Where a moment lies, in units of the axis.
    fn at(&self, moment: i64) -> i64 {
        let before = self
            .busy
            .iter()
            .rev()
            .find(|((from, _), _)| *from <= moment);
        let place = before.map_or(0, |((from, to), place)| place + moment.min(*to) - from);
        place * WIDTH / self.length.max(1)
    }

    /// Where time was left out, in units of the axis.
    fn cuts(&self) -> impl Iterator<Item = i64> {
        let next = self.busy.iter().skip(1);
        self.busy
            .iter()
            .zip(next)
            .filter_map(|(((from, to), place), ((next, _), next_place))| {
                let shown = next_place - (place + to - from);
                let middle = place + to - from + shown / 2;
                (next - to > shown).then(|| middle * WIDTH / self.length.max(1))
            })
    }

    /// What the whole axis shows, as a heading: the time without what was left out.
    pub(super) fn heading(&self) -> Markup {
        html! { span .axis { span { "0" } span { (milliseconds(self.length)) " ms" } } }
    }

    /// One bar: until `waited`, its request waited for another one.
    pub(super) fn bar(&self, (from, to): Span, waited: Option<i64>, mood: &str) -> Markup {
        let start = self.at(from).min(WIDTH - SEEN);
        let end = self.at(to).max(start + SEEN);
        let worked = waited.map_or(start, |until| self.at(until).clamp(start, end - SEEN));
        html! {
            svg .bar viewBox="0 0 1000 16" preserveAspectRatio="none" aria-hidden="true" {
                @for cut in self.cuts() { rect .cut x=(cut) y="0" width="2" height="16" {} }
                @if worked > start {
                    rect .waited x=(start) y="6" width=(worked - start) height="4" {}
                }
                rect class=(mood) x=(worked) y="2" width=(end - worked) height="12" {}
            }
        }
    }
}

/// Microseconds as milliseconds.
pub(super) fn milliseconds(micros: i64) -> String {
    format!("{}.{}", micros / 1000, micros % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_lies_where_it_was() {
        let axis = Axis::of(&[(100, 200), (150, 300), (300, 500)]);
        assert_eq!(
            [100, 200, 300, 500].map(|moment| axis.at(moment)),
            [0, 250, 500, 1000]
        );
        assert_eq!(axis.cuts().count(), 0);
    }

    #[test]
    fn a_long_pause_is_cut_and_a_short_one_is_not() {
        // Two of 100, and 50 for the day between them.
        let axis = Axis::of(&[(0, 100), (86_400_000_000, 86_400_000_100)]);
        assert_eq!(axis.length, 250);
        assert_eq!(
            [0, 100, 86_400_000_000].map(|moment| axis.at(moment)),
            [0, 400, 600]
        );
        assert_eq!(axis.cuts().collect::<Vec<_>>(), [500]);
        let axis = Axis::of(&[(0, 100), (110, 200)]);
        assert_eq!(axis.cuts().count(), 0);
    }

    #[test]
    fn a_bar_can_be_seen_however_short_it_was_and_none_is_no_axis() {
        let axis = Axis::of(&[(0, 1_000_000), (1_000_000, 1_000_000)]);
        let bar = axis.bar((1_000_000, 1_000_000), None, "good").into_string();
        assert!(bar.contains(r#"x="992" y="2" width="8""#), "{bar}");
        let none = Axis::of(&[]);
        assert_eq!(none.at(7), 0);
    }
}
