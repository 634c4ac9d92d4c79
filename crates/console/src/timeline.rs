//! Requests as bars on one axis of time, drawn on the server.
//!
//! Promise: a bar is as long as its request took. Where nothing happened for long, the axis is cut,
//! a line shows where, and a sentence says how long that was.

use maud::{Markup, html};

use super::{
    layout::{head, table_with_heads},
    locale::Locale,
};

/// The width of the axis, in SVG units.
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
    locale: Locale,
}

impl Axis {
    pub(super) fn of(spans: &[Span], locale: Locale) -> Self {
        let not_empty = |(from, to): &Span| (*from, (*to).max(from + 1));
        let mut sorted: Vec<Span> = spans.iter().map(not_empty).collect();
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
        Self {
            busy,
            length,
            locale,
        }
    }

    /// Where a moment lies, in units of the axis.
    fn at(&self, moment: i64) -> i64 {
        let mut from_the_end = self.busy.iter().rev();
        let before = from_the_end.find(|((from, _), _)| *from <= moment);
        let place = before.map_or(0, |((from, to), place)| place + moment.min(*to) - from);
        place * WIDTH / self.length.max(1)
    }

    /// Where time was left out, in units of the axis, and how long nothing happened there, in
    /// microseconds.
    fn cuts(&self) -> impl Iterator<Item = (i64, i64)> {
        let next = self.busy.iter().skip(1);
        self.busy
            .iter()
            .zip(next)
            .filter_map(|(((from, to), place), ((next, _), next_place))| {
                let shown = next_place - (place + to - from);
                let middle = place + to - from + shown / 2;
                let cut = (middle * WIDTH / self.length.max(1), next - to);
                (next - to > shown).then_some(cut)
            })
    }

    /// How long nothing happened before a moment at which something began, if that was a second or
    /// more.
    pub(super) fn pause_before(&self, from: i64) -> Option<String> {
        let mut pairs = self.busy.iter().zip(self.busy.iter().skip(1));
        let (((_, before), _), _) = pairs.find(|(_, ((start, _), _))| *start == from)?;
        (from - before >= 1_000_000).then(|| duration(from - before, self.locale))
    }

    /// A table whose second column has the bars, between the `first` and the other `columns`.
    pub(super) fn table(
        &self,
        label: &str,
        class: Option<&str>,
        first: &str,
        columns: &[&str],
        rows: &Markup,
    ) -> Markup {
        let heads = html! {
            (head(first))
            th scope="col" { (self.heading()) }
            @for column in columns { (head(column)) }
        };
        html! { (table_with_heads(label, class, &heads, rows)) (self.legend()) }
    }

    /// What the lines across the bars mean, if there are any.
    fn legend(&self) -> Markup {
        let pauses = self.cuts().map(|(_, pause)| duration(pause, self.locale));
        let pauses: Vec<_> = pauses.collect();
        html! {
            @if !pauses.is_empty() {
                p .quiet {
                    "A line across the bars is a pause in which nothing happened, drawn shorter than it was: "
                    (pauses.join(", ")) "."
                }
            }
        }
    }

    /// What the whole axis shows, as a heading: the time without what was left out.
    fn heading(&self) -> Markup {
        html! { span .axis { span { "0" } span { (milliseconds(self.length, self.locale)) " ms" } } }
    }

    /// One bar: until `waited`, its request waited for another one.
    pub(super) fn bar(&self, (from, to): Span, waited: Option<i64>, mood: &str) -> Markup {
        let start = self.at(from).min(WIDTH - SEEN);
        let end = self.at(to).max(start + SEEN);
        let worked = waited.map_or(start, |until| self.at(until).clamp(start, end - SEEN));
        html! {
            svg .bar viewBox="0 0 1000 16" preserveAspectRatio="none" aria-hidden="true" {
                @for (cut, _) in self.cuts() { rect .cut x=(cut) y="0" width="2" height="16" {} }
                @if worked > start {
                    rect .waited x=(start) y="6" width=(worked - start) height="4" {}
                }
                rect class=(mood) x=(worked) y="2" width=(end - worked) height="12" {}
            }
        }
    }
}

/// Microseconds as a person says how long something took.
pub(super) fn duration(micros: i64, locale: Locale) -> String {
    match micros / 1_000_000 {
        0 => format!("{} ms", milliseconds(micros, locale)),
        seconds => lasted(seconds),
    }
}

/// Seconds in the two largest units that they have.
pub(super) fn lasted(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match (hours / 24, hours % 24, minutes % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, _, _) => format!("{days} d {hours} h"),
    }
}

pub(super) fn milliseconds(micros: i64, locale: Locale) -> String {
    locale.written(&format!("{}.{}", micros / 1000, micros % 1000 / 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis_of(spans: &[Span]) -> Axis {
        Axis::of(spans, Locale::default())
    }

    #[test]
    fn what_overlaps_lies_where_it_was() {
        let axis = axis_of(&[(100, 200), (150, 300), (300, 500)]);
        let places = [100, 200, 300, 500].map(|moment| axis.at(moment));
        assert_eq!(places, [0, 250, 500, 1000]);
        assert_eq!(axis.cuts().count(), 0);
    }

    #[test]
    fn a_long_pause_is_cut_and_a_short_one_is_not() {
        // Two of 100, and 50 for the day between them.
        let axis = axis_of(&[(0, 100), (86_400_000_000, 86_400_000_100)]);
        assert_eq!(axis.length, 250);
        let places = [0, 100, 86_400_000_000].map(|moment| axis.at(moment));
        assert_eq!(places, [0, 400, 600]);
        assert_eq!(axis.cuts().collect::<Vec<_>>(), [(500, 86_399_999_900)]);
        let pause = axis.pause_before(86_400_000_000);
        assert_eq!(pause.as_deref(), Some("23 h 59 min"));
        assert_eq!(axis.pause_before(0), None);
        let legend = axis.legend().into_string();
        assert!(legend.ends_with(": 23 h 59 min.</p>"), "{legend}");
        let axis = axis_of(&[(0, 100), (110, 200)]);
        assert_eq!(axis.cuts().count(), 0);
        assert_eq!(axis.legend().into_string(), "");
    }

    #[test]
    fn how_long_something_took_has_two_units_at_most() {
        for (micros, said) in [
            (900, "0.9 ms"),
            (59_900_000, "59 s"),
            (61_000_000, "1 min 1 s"),
            (3_660_000_000, "1 h 1 min"),
            (90_000_000_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(micros, Locale::default()), said);
        }
    }

    #[test]
    fn a_bar_can_be_seen_however_short_it_was_and_none_is_no_axis() {
        let axis = axis_of(&[(0, 1_000_000), (1_000_000, 1_000_000)]);
        let bar = axis.bar((1_000_000, 1_000_000), None, "good").into_string();
        assert!(bar.contains(r#"x="992" y="2" width="8""#), "{bar}");
        let none = axis_of(&[]);
        assert_eq!(none.at(7), 0);
    }
}
