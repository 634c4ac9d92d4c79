//! The protocol, step by step, beside designs that look right and charge twice.
//!
//! Promise: the models of `tools/model` make what is shown, and a test compares. The page shows
//! nothing of an account, so it needs no session, and a link to a step works for all.

use std::sync::LazyLock;

use actix_web::{HttpRequest, http::StatusCode};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    Page,
    error::ConsoleError,
    layout::{self, Section},
    query_value,
    visitor::Visitor,
};

#[derive(Default, Deserialize)]
struct Protocol {
    events: Vec<Event>,
    designs: Vec<Design>,
    scenarios: Vec<Scenario>,
}

/// An event's name, title and description.
#[derive(Deserialize)]
struct Event(String, String, String);

#[derive(Deserialize)]
struct Design {
    name: String,
    title: String,
    /// The lanes of the drawing, a letter for each ([`lane_name`]).
    lanes: String,
    tables: Vec<String>,
    how: String,
    why: String,
}

#[derive(Deserialize)]
struct Scenario {
    event: String,
    /// The design that charges twice, and the one of this service.
    designs: [String; 2],
    steps: Vec<[Option<Step>; 2]>,
}

/// A step: the lanes that it goes through, what happens, the rows of each table after it, and how
/// often the customer has paid by then.
#[derive(Deserialize)]
struct Step(String, String, Vec<Vec<[String; 2]>>, u8);

static PROTOCOL: LazyLock<Protocol> =
    LazyLock::new(|| serde_json::from_str(include_str!("protocol.json")).unwrap_or_default());

impl Scenario {
    fn name(&self) -> String {
        format!("{}.{}", self.event, self.designs[0])
    }

    /// The address of a step. At step 0, nothing has happened.
    fn address(&self, step: usize) -> String {
        format!(
            "/console/protocol?scenario={}&step={step}#step",
            self.name()
        )
    }

    fn event(&self) -> Option<&Event> {
        PROTOCOL.events.iter().find(|event| event.0 == self.event)
    }

    /// The first scenario of the next event.
    fn next(&self) -> Option<(&Self, &Event)> {
        let events = PROTOCOL.events.iter();
        let mut rest = events.skip_while(|event| event.0 != self.event);
        let next = rest.nth(1)?;
        let mut scenarios = PROTOCOL.scenarios.iter();
        Some((scenarios.find(|one| one.event == next.0)?, next))
    }

    fn side(&self, index: usize) -> Option<Side<'_>> {
        let (name, steps) = (self.designs.get(index)?, &self.steps);
        let mut designs = PROTOCOL.designs.iter();
        let design = designs.find(|design| design.name == *name)?;
        let steps = steps.iter().map(|step| step.get(index)?.as_ref()).collect();
        Some(Side { design, steps })
    }
}

/// One of the two designs of a scenario.
struct Side<'a> {
    design: &'a Design,
    /// `None`: the other design does this step alone.
    steps: Vec<Option<&'a Step>>,
}

impl Side<'_> {
    /// The last step until a number of steps, if there was one.
    fn last(&self, until: usize) -> Option<&Step> {
        self.steps
            .iter()
            .take(until)
            .rev()
            .flatten()
            .next()
            .copied()
    }

    fn effects(&self, until: usize) -> u8 {
        self.last(until).map_or(0, |step| step.3)
    }

    /// Whether the design has no step after so many.
    fn is_over(&self, after: usize) -> bool {
        self.steps.iter().skip(after).all(Option::is_none)
    }

    fn says(&self, step: usize) -> &str {
        match step.checked_sub(1).map(|index| self.steps.get(index)) {
            None => "Nothing has happened yet.",
            Some(Some(Some(now))) => &now.1,
            Some(_) if self.is_over(step) => "It is over.",
            Some(_) => "Nothing happens meanwhile.",
        }
    }
}

pub(super) async fn show(visitor: Option<Visitor>, request: HttpRequest) -> Page {
    let unknown = || ConsoleError::Unreadable("The protocol has no such scenario or step.");
    let mut scenarios = PROTOCOL.scenarios.iter();
    let scenario = match query_value(&request, "scenario") {
        None => scenarios.next(),
        Some(name) => scenarios.find(|one| one.name() == name),
    };
    let scenario = scenario.ok_or_else(unknown)?;
    let step = match query_value(&request, "step") {
        None => Some(0),
        Some(number) => number.parse().ok(),
    };
    let step = step.filter(|step| *step <= scenario.steps.len());
    let body = body(scenario, step.ok_or_else(unknown)?).ok_or_else(unknown)?;
    const TITLE: &str = "Protocol";
    Ok(match visitor {
        Some(visitor) => layout::page(&visitor, TITLE, Some(Section::Protocol), &body),
        None => layout::bare_page(StatusCode::OK, TITLE, &body),
    })
}

fn body(scenario: &Scenario, step: usize) -> Option<Markup> {
    let Event(_, title, what) = scenario.event()?;
    let (left, right) = (scenario.side(0)?, scenario.side(1)?);
    Some(html! {
        h1 { "Protocol" }
        p {
            "A customer pays 20.00 once. Their request comes twice, from client A and from client B: they \
             clicked again, or heard nothing. Both requests carry the key " code { "order-7" } ". On the left is \
             a design that looks right, and on the right is this service. Choose what happens. Beside each \
             event are the designs that charge twice after it."
        }
        (choices(scenario))
        h2 #step { (title) }
        p { (what) }
        (controls(scenario, step))
        div .sides {
            (side(&left, "bad", "Looks right", step))
            (side(&right, "good", "This service", step))
        }
        h2 { "All steps" }
        ol .both {
            li { strong { "Step" } @for side in [&left, &right] { p { strong { (side.design.title) } } } }
            @for number in 0..=scenario.steps.len() {
                li {
                    a href=(scenario.address(number)) aria-label={ "Step " (number) }
                        aria-current=[(number == step).then_some("step")] { (number) }
                    p { (left.says(number)) }
                    p { (right.says(number)) }
                }
            }
        }
        p .quiet {
            "Each step is what a model of the design does. A checker visits every order in which such steps can \
             happen: on the right, no order charges twice."
        }
    })
}

/// The events, each with the designs that charge twice after it.
fn choices(current: &Scenario) -> Markup {
    html! {
        ul .choices {
            @for event in &PROTOCOL.events {
                li {
                    (event.1) ": "
                    @for scenario in PROTOCOL.scenarios.iter().filter(|one| one.event == event.0) {
                        @if let Some(side) = scenario.side(0) {
                            a href=(scenario.address(0))
                                aria-current=[(scenario.name() == current.name()).then_some("true")] {
                                (side.design.title)
                            }
                            " "
                        }
                    }
                }
            }
        }
    }
}

fn controls(scenario: &Scenario, step: usize) -> Markup {
    let last = scenario.steps.len();
    html! {
        p .controls {
            @if let Some(before) = step.checked_sub(1) {
                a rel="prev" accesskey="p" href=(scenario.address(before)) { "← Back" }
            } @else {
                span .quiet { "← Back" }
            }
            strong { "Step " (step) " of " (last) }
            @if step < last {
                a rel="next" accesskey="n" href=(scenario.address(step + 1)) { "Next →" }
            } @else {
                a href=(scenario.address(0)) { "Again" }
                @if let Some((next, event)) = scenario.next() {
                    a href=(next.address(0)) { (event.1) " →" }
                }
            }
            // The script shows this, because the keys need it.
            span .quiet data-keys hidden { "The arrow keys do this too." }
        }
    }
}

/// A design after a step: what just happened, the rows, and the steps so far.
fn side(side: &Side<'_>, mood: &str, label: &str, step: usize) -> Markup {
    let (design, effects, is_settled) = (side.design, side.effects(step), side.is_over(step));
    let verdict = match effects {
        0 => "No charge yet",
        1 if is_settled => "1 charge: the customer paid once",
        1 => "1 charge",
        _ => "2 charges: the customer paid twice",
    };
    let mood = if is_settled { mood } else { "" };
    html! {
        section .card aria-labelledby=(design.name) {
            h3 id=(design.name) { span .quiet { (label) ": " } (design.title) }
            p .now { (if step == 0 { &design.how } else { side.says(step) }) }
            p class={ "says " (mood) } { (verdict) }
            p { @if is_settled { (design.why) } }
            div .tables {
                @for (index, name) in design.tables.iter().enumerate() { (table(side, index, name, step)) }
            }
            (timeline(side, step))
            p .quiet { @if step > 0 { (design.how) } }
        }
    }
}

/// The rows of a table after a step. Those that the step wrote are marked.
fn table(side: &Side<'_>, index: usize, name: &str, step: usize) -> Markup {
    let rows = |until| side.last(until).and_then(|step| step.2.get(index));
    let (before, now) = (rows(step.saturating_sub(1)), rows(step));
    let is_new = |row| !before.is_some_and(|before| before.contains(row));
    html! {
        table {
            caption { (name) }
            tbody {
                @for row in now.into_iter().flatten() {
                    tr .new[is_new(row)] { @for cell in row { td { (cell) } } }
                }
                @if now.is_none_or(Vec::is_empty) { tr { td .quiet colspan="2" { "no row" } } }
            }
        }
    }
}

/// Where the lines of steps are, in units of the drawing.
const WIDTH: usize = 360;
const HEAD: usize = 24;
const ROW: usize = 26;

/// The steps as lines between lanes, from above to below.
fn timeline(side: &Side<'_>, step: usize) -> Markup {
    let lanes = &side.design.lanes;
    let width = WIDTH / lanes.len().max(1);
    let at = |lane| lanes.find(lane).unwrap_or_default() * width + width / 2;
    let height = HEAD + side.steps.len() * ROW;
    let done = side.steps.iter().take(step).enumerate();
    let done = done.filter_map(|(index, done)| done.map(|done| (index, done)));
    html! {
        svg .lanes viewBox={ "0 0 " (WIDTH) " " (height) } aria-hidden="true" {
            @if step > 0 { rect .row y=(HEAD + (step - 1) * ROW) width=(WIDTH) height=(ROW) {} }
            @for lane in lanes.chars() {
                line .lane x1=(at(lane)) x2=(at(lane)) y1=(HEAD) y2=(height) {}
                text x=(at(lane)) y="14" text-anchor="middle" { (lane_name(lane)) }
            }
            @for (index, Step(through, _, _, effects)) in done {
                @let is_bad = through.ends_with('!') || *effects > side.effects(index).max(1);
                g .bad[is_bad] .now[index + 1 == step] { (hops(through, HEAD + index * ROW + 10, &at)) }
            }
        }
    }
}

fn lane_name(lane: char) -> &'static str {
    match lane {
        'a' => "Client A",
        'b' => "Client B",
        'A' => "Server A",
        'B' => "Server B",
        'C' => "Cache",
        'P' => "Provider",
        _ => "Database",
    }
}

/// An arrow for each hop from lane to lane, one below the other, and a cross where one gets lost.
fn hops(through: &str, top: usize, at: &dyn Fn(char) -> usize) -> Markup {
    let places: Vec<usize> = through.trim_end_matches('!').chars().map(at).collect();
    let last = places.last().copied().unwrap_or_default();
    let bottom = top + places.len().saturating_sub(2) * 5;
    html! {
        @for (index, pair) in places.windows(2).enumerate() {
            @if let [from, to] = *pair {
                @let y = top + index * 5;
                @let (near, far) = if to > from { (to - 6, to - 1) } else { (to + 6, to + 1) };
                line x1=(from) x2=(near) y1=(y) y2=(y) {}
                path d={ "M" (far) " " (y) "L" (near) " " (y - 3) "V" (y + 3) "Z" } {}
            }
        }
        @if through.ends_with('!') {
            path .cross d={ "M" (last - 5) " " (bottom - 5) "l10 10m0 -10l-10 10" } {}
        } @else if places.len() == 1 {
            circle cx=(last) cy=(top) r="4" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_charges_twice_on_the_left_and_once_on_the_right() {
        assert!(PROTOCOL.scenarios.len() > PROTOCOL.events.len());
        for scenario in &PROTOCOL.scenarios {
            let last = scenario.steps.len();
            let effects = [0, 1].map(|index| scenario.side(index).unwrap().effects(last));
            assert_eq!(effects, [2, 1], "{}", scenario.name());
            assert!((0..=last).all(|step| body(scenario, step).is_some()));
        }
    }
}
