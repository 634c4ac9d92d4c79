//! What became of the last requests, in numbers.
//!
//! Promise: what it reads does not grow with the number of requests: the log's counts of each
//! minute, and the newest rows of other tables.

use std::time::Duration;

use actix_web::HttpRequest;
use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};

use super::{
    Asked, LastCheck, Minute, Page, WebhookEndpoint,
    deliveries::health,
    error::ConsoleError,
    in_flight::KEYS_MAX,
    layout::{self, Section, head, resource, second, state, table_with_heads},
    locale::Locale,
    query_value, requests,
    timeline::duration,
    visitor::Visitor,
};

/// The series of the chart: a name, and the outcomes of the log that it sums up.
const SERIES: [(&str, &[&str]); 4] = [
    ("executed", &["executed"]),
    ("replayed", &["replayed"]),
    ("refused", &["refused", "reused", "in_use"]),
    ("failed", &["failed", "unanswered"]),
];

/// The width and height of a part of the chart, and the height of its smallest bar, in SVG units.
const WIDTH: i64 = 10;
const HEIGHT: i64 = 200;
const SEEN: i64 = 3;

/// A period until now, in parts of so many minutes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Period {
    name: &'static str,
    parts: i64,
    minutes: i64,
}

const PERIODS: [Period; 2] = [
    Period {
        name: "hour",
        parts: 60,
        minutes: 1,
    },
    Period {
        name: "day",
        parts: 48,
        minutes: 30,
    },
];

impl Period {
    fn of(request: &HttpRequest) -> Result<Self, ConsoleError> {
        let name = query_value(request, "span");
        let named = |period: &Self| name.as_ref().is_none_or(|name| *name == period.name);
        let unknown = ConsoleError::Unreadable("The span is an hour or a day.");
        PERIODS.into_iter().find(named).ok_or(unknown)
    }

    /// When its first part began. Its last one is the one that has begun at `now`.
    fn begins(self, now: DateTime<Utc>) -> DateTime<Utc> {
        let seconds = self.minutes * 60;
        let last = now.timestamp().div_euclid(seconds) * seconds;
        let first = last - (self.parts - 1) * seconds;
        DateTime::from_timestamp(first, 0).unwrap_or(now)
    }
}

pub(super) async fn show(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    if let Some(list) = requests::moved(&request) {
        return Ok(layout::redirect(&list));
    }
    let period = Period::of(&request)?;
    let figures = figures(&server, &visitor, period).await?;
    let body = html! {
        h1 { "Overview" }
        p { "What became of this account's requests, but for reads. The log may miss some, because none waits for it." }
        ul .spans {
            @for one in PERIODS {
                li {
                    a href={ "/console?span=" (one.name) } aria-current=[(one == period).then_some("true")] {
                        "The last " (one.name)
                    }
                }
            }
        }
        div #live data-live={ "/console/live/overview?span=" (period.name) } { (figures) }
    };
    let (section, has_mistake) = (Section::Overview, false);
    Ok(layout::section_page(&visitor, section, has_mistake, &body))
}

/// The figures, for the script that keeps them current.
pub(super) async fn live(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let figures = figures(&server, &visitor, Period::of(&request)?).await?;
    Ok(layout::fragment(figures))
}

async fn figures(
    server: &Asked,
    visitor: &Visitor,
    period: Period,
) -> Result<Markup, ConsoleError> {
    let (account, locale) = (visitor.account, visitor.locale);
    let begins = period.begins(Utc::now());
    let minutes = server.minutes(account, begins).await?;
    let check = server.last_check(account).await?;
    let second_effects: i64 = minutes.iter().map(|minute| minute.second_effects).sum();
    let percentile = |percent| percentile(&minutes, percent, locale);
    let durations = (percentile(50), percentile(99));
    Ok(html! {
        (picture(&parts(&minutes, period, begins), period, begins, locale))
        dl {
            dt { "Retries" }
            dd { (locale.count(second_effects)) " that would have been second effects" }
            dt { "Duration" }
            dd {
                @if let (Some(half), Some(most)) = durations { "p50 " (half) ", p99 " (most) } @else { "none yet" }
            }
            dt { "Keys without an outcome" }
            dd { (in_flight(server, visitor).await?) }
            dt { "Webhook endpoints that fail" }
            dd { (failing(server, visitor).await?) }
            @if let Some(check) = check { dt { "Last check of all accounts" } dd { (checked(check)) } }
        }
    })
}

async fn in_flight(server: &Asked, visitor: &Visitor) -> Result<Markup, ConsoleError> {
    let (here, leased) = server.in_flight(visitor.account, KEYS_MAX).await?;
    let is_leased = |key: &String| leased.iter().any(|one| one.key == *key);
    let others = here.iter().filter(|(key, _)| !is_leased(key)).count();
    let in_doubt = leased.iter().filter(|one| one.request.in_doubt).count();
    let in_flight = leased.len() - in_doubt + others;
    // A full page of keys may not be all.
    let more = if leased.len() < KEYS_MAX {
        ""
    } else {
        " or more"
    };
    Ok(html! {
        a href="/console/in-flight" {
            (in_flight) (more) " in flight, "
            (in_doubt) (more) " " @if in_doubt > 0 { (state("in_doubt")) } @else { "in doubt" }
        }
    })
}

/// The endpoints that have not acknowledged each attempt of their newest deliveries.
async fn failing(server: &Asked, visitor: &Visitor) -> Result<Markup, ConsoleError> {
    let (endpoints, locale) = (
        server.webhook_endpoints(visitor.account).await?,
        visitor.locale,
    );
    let fails = |endpoint: &&WebhookEndpoint| endpoint.succeeded < endpoint.attempts;
    let failing: Vec<_> = endpoints.iter().filter(fails).collect();
    Ok(html! {
        @if failing.is_empty() { "none" }
        @for endpoint in failing {
            p {
                (resource(&endpoint.id)) " " (endpoint.url) " " (state(health(endpoint))) ": "
                (locale.count(endpoint.attempts - endpoint.succeeded)) " of " (locale.count(endpoint.attempts)) " attempts of its newest deliveries"
            }
        }
    })
}

fn checked(check: LastCheck) -> Markup {
    html! {
        (second(check.ended_at)) " " span .zone { "(UTC)" } ": "
        @match check.violations {
            0 => (state("succeeded")),
            count => { (state("failed")) ", " (count) " violations" }
        }
    }
}

/// A percentile of durations, as the bound of the histogram that it lies below.
fn percentile(minutes: &[Minute], percent: i64, locale: Locale) -> Option<String> {
    let mut sums: Vec<(Option<Duration>, i64)> = Vec::new();
    for (place, (bound, count)) in minutes.iter().flat_map(|one| one.took.iter().enumerate()) {
        match sums.get_mut(place) {
            Some((_, sum)) => *sum += count,
            None => sums.push((*bound, *count)),
        }
    }
    let total: i64 = sums.iter().map(|(_, count)| count).sum();
    let rank = (total * percent + 99) / 100;
    let mut greatest = Duration::ZERO;
    let mut before = 0;
    for (bound, count) in sums.into_iter().filter(|_| total > 0) {
        greatest = bound.unwrap_or(greatest);
        before += count;
        if before >= rank {
            let word = if bound.is_some() { "under" } else { "over" };
            let micros = i64::try_from(greatest.as_micros()).unwrap_or(i64::MAX);
            return Some(format!("{word} {}", duration(micros, locale)));
        }
    }
    None
}

/// How many requests of each part of the period ended in which way, in the order of [`SERIES`].
fn parts(minutes: &[Minute], period: Period, begins: DateTime<Utc>) -> Vec<[i64; 4]> {
    let mut parts: Vec<_> = (0..period.parts).map(|_| [0; 4]).collect();
    for minute in minutes {
        let place = (minute.at - begins)
            .num_minutes()
            .div_euclid(period.minutes);
        // A replica whose clock is ahead writes minutes after the last part.
        let place = usize::try_from(place).ok();
        let Some(part) = place.and_then(|place| parts.get_mut(place)) else {
            continue;
        };
        for (sum, (_, outcomes)) in part.iter_mut().zip(SERIES) {
            let ended = minute.ended.iter();
            let ended = ended.filter(|(name, _)| outcomes.contains(name));
            *sum += ended.map(|(_, count)| count).sum::<i64>();
        }
    }
    parts
}

fn picture(parts: &[[i64; 4]], period: Period, begins: DateTime<Utc>, locale: Locale) -> Markup {
    let sums = parts.iter().map(|part| part.iter().sum::<i64>());
    let most = sums.max().unwrap_or(0).max(1);
    let start = |place: i64| begins + TimeDelta::minutes(period.minutes * place);
    let (from, to) = (start(0), start(period.parts));
    let heads = html! {
        (head("From (UTC)"))
        @for (name, _) in SERIES { th .number scope="col" { (name) } }
    };
    let rows = html! {
        @for (part, place) in parts.iter().zip(0..).filter(|(part, _)| part.iter().any(|count| *count > 0)) {
            tr { td { (second(start(place))) } @for count in part { td .number { (locale.count(*count)) } } }
        }
    };
    let view = format!(
        "0 {} {} {}",
        -4 * SEEN,
        WIDTH * period.parts,
        HEIGHT + 4 * SEEN
    );
    html! {
        svg .parts viewBox=(view) preserveAspectRatio="none" role="img"
            aria-label="Requests over time by how they ended. The table below has the numbers." {
            @for (part, place) in parts.iter().zip(0..) { (bars(part, place, most)) }
        }
        div .axis .quiet { span { (second(from)) " " span .zone { "(UTC)" } } (second(to)) }
        @if parts.iter().flatten().all(|count| *count == 0) {
            p {
                "No request came in this time, but for reads. " a href="/console/playground" { "Send one" }
                ", and it is counted here."
            }
        }
        ul .legend {
            @for (place, (name, outcomes)) in SERIES.into_iter().enumerate() {
                li {
                    svg .swatch viewBox="0 0 1 1" aria-hidden="true" { rect class=(name) width="1" height="1" {} }
                    " "
                    @for outcome in outcomes {
                        a href={ "/console/requests?outcome=" (outcome) } { (outcome.replace('_', " ")) } " "
                    }
                    (locale.count(parts.iter().filter_map(|part| part.get(place)).sum()))
                }
            }
        }
        details #numbers {
            summary { "The numbers" }
            (table_with_heads("Requests over time", None, &heads, &rows))
        }
    }
}

/// The stacked bars of a part, each high enough to be seen.
fn bars(part: &[i64; 4], place: i64, most: i64) -> Markup {
    let mut top = HEIGHT;
    let bars = part.iter().zip(SERIES).filter(|(count, _)| **count > 0);
    html! {
        @for (count, (name, _)) in bars {
            @let height = (count * HEIGHT / most).max(SEEN);
            ({
                top -= height;
                html! { rect class=(name) x=(place * WIDTH + 1) y=(top) width=(WIDTH - 2) height=(height) {} }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(at: DateTime<Utc>, ended: &[(&'static str, i64)], took: [i64; 3]) -> Minute {
        let [low, high, over] = took;
        let bound = |seconds| Some(Duration::from_secs(seconds));
        Minute {
            at,
            ended: ended.to_vec(),
            took: vec![(bound(1), low), (bound(2), high), (None, over)],
            second_effects: 0,
        }
    }

    #[test]
    fn a_minute_lies_in_its_part_and_reads_lie_in_none() {
        let [_, day] = PERIODS;
        let now = DateTime::from_timestamp(86_400 * 20_000 + 5 * 60, 0).unwrap_or_default();
        let begins = day.begins(now);
        let at = |minutes| begins + TimeDelta::minutes(minutes);
        let minutes = [
            minute(at(0), &[("executed", 2), ("read", 9)], [0; 3]),
            minute(at(29), &[("executed", 1), ("in_use", 4)], [0; 3]),
            minute(at(30), &[("unanswered", 5)], [0; 3]),
            minute(at(47 * 30), &[("replayed", 6)], [0; 3]),
            minute(at(48 * 30), &[("replayed", 7)], [0; 3]),
        ];
        let parts = parts(&minutes, day, begins);
        assert_eq!(parts.get(..2), Some(&[[3, 0, 4, 0], [0, 0, 0, 5]][..]));
        assert_eq!(parts.last(), Some(&[0, 6, 0, 0]));
        assert_eq!(parts.len(), 48);
        assert!(at(47 * 30) <= now && now < at(48 * 30));
    }

    #[test]
    fn a_percentile_is_the_bound_that_so_many_lie_below() {
        let one = |took| [minute(Utc::now(), &[], took)];
        let both = |took| {
            let minutes = one(took);
            [50, 99]
                .map(|percent| percentile(&minutes, percent, Locale::default()).unwrap_or_default())
        };
        assert_eq!(percentile(&one([0; 3]), 50, Locale::default()), None);
        assert_eq!(both([99, 1, 0]), ["under 1 s"; 2]);
        assert_eq!(both([98, 2, 0]), ["under 1 s", "under 2 s"]);
        assert_eq!(both([0, 1, 2]), ["over 2 s"; 2]);
    }
}
