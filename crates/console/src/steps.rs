//! The steps of what takes several, as a line in time: which are done, and which undo others.

use maud::{Markup, html};

use super::{
    Happened,
    layout::{resource, state, time},
    masked::Shown,
};

pub(super) const MEMBER: &str = "steps";

/// The steps of an object, with the times of the events that tell of them. Behind a step that was
/// refused, what is not skipped undoes the steps before it.
pub(super) fn line(object: &Shown, events: &[Happened]) -> Markup {
    let Some(Shown::List(steps)) = object.member(MEMBER) else {
        return html! {};
    };
    let (mut later, mut is_refused) = (events.iter(), false);
    let mut shown = Vec::new();
    for step in steps {
        let word = step.text("state").unwrap_or_default();
        let made = step.text("resource");
        let undoes = is_refused && word != "skipped";
        is_refused |= word == "refused";
        // The first event about what the step made, behind that of the step before it.
        let mut of_step = later.clone();
        let event = made.and_then(|id| of_step.find(|one| one.object_id.as_deref() == Some(id)));
        if event.is_some() {
            later = of_step;
        }
        shown.push(html! {
            li class=(word) {
                strong { (step.text("name").unwrap_or_default().replace('_', " ")) }
                @if undoes { " undoes what was done, " } @else { ": " }
                (state(word))
                @if let Some(attempts) = step.number("attempts").filter(|count| *count > 1) {
                    ", " (attempts) " attempts"
                }
                @if let Some(id) = made { br; (resource(id)) }
                @if let Some(event) = event { " " (time(event.created_at)) }
            }
        });
    }
    html! {
        h2 { "Steps" }
        ol .steps { @for step in shown { (step) } }
    }
}
