//! The report as a page that needs no other file: the verdict, then what is wrong, each with its
//! requests drawn on one axis of time, and then all checks.
//!
//! Promise: what a server has sent is text on the page, and little of it. The page runs no script
//! and loads nothing.

use std::{fmt::Write, time::Duration};

use crate::{
    history::{Attempt, Group, groups},
    report::{Finding, Grade, Report, SOURCES, escape},
};

/// The width of the axis, in SVG units.
const WIDTH: u128 = 1000;

/// The narrowest bar that can be seen.
const SEEN: u128 = 6;

/// Attempts of one group that are drawn, and how many of them are drawn beside each other.
const BARS: usize = 200;
const LANES: usize = 16;

/// Text that may have come from the server: its beginning.
fn shown(text: &str) -> String {
    const SHOWN: usize = 600;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", escape(text.get(..end).unwrap_or_default())),
        None => escape(text),
    }
}

fn class(grade: Grade) -> &'static str {
    match grade {
        Grade::Unsafe => "unsafe",
        Grade::Unclear => "unclear",
        Grade::NotKnown => "unknown",
        Grade::Holds => "holds",
    }
}

impl Report {
    /// The findings as a page of HTML, which needs no other file.
    #[must_use]
    pub fn html(&self) -> String {
        let findings = self.sorted();
        let worst = findings.first().map_or(Grade::Holds, |one| one.outcome);
        let (verdict, service) = (escape(&self.verdict()), shown(&self.service));
        // The names of what is not known may be many.
        let (verdict, unknown) = verdict.split_once(". ").unwrap_or((&verdict, ""));
        let (style, worst, sum) = (include_str!("page.css"), class(worst), self.sum());
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>Is {service} safe to retry?</title>\n<style>\n{style}</style>\n</head>\n\
             <body>\n<main>\n<p class=\"quiet\">charge-once-conform asked {service}</p>\n\
             <h1 class=\"{worst}\">{verdict}</h1>\n<p>{sum}. {unknown}</p>\n"
        );
        for finding in findings.iter().filter(|one| one.outcome.is_violation()) {
            page.push_str(&section(finding));
        }
        page.push_str("<h2>All checks</h2>\n<table>\n");
        for finding in &findings {
            let (name, rule) = (&finding.check.name, escape(&finding.check.rule));
            let (class, outcome) = (class(finding.outcome), finding.outcome.words());
            let seen = shown(&finding.seen);
            let _ = writeln!(
                page,
                "<tr><th scope=\"row\"><code>{name}</code><br>\
                 <span class=\"{class}\">{outcome}</span></th>\
                 <td>{rule}<br><span class=\"quiet\">{seen}</span></td></tr>"
            );
        }
        page.push_str("</table>\n<p class=\"quiet\">Sources:");
        for (name, link) in SOURCES {
            let _ = write!(page, " <a href=\"{link}\" rel=\"noreferrer\">{name}</a>");
        }
        page.push_str("</p>\n</main>\n</body>\n</html>\n");
        page
    }
}

/// What is wrong, how it came to be, what it costs, and how to mend it.
fn section(finding: &Finding) -> String {
    let check = finding.check;
    let (name, rule, source) = (&check.name, escape(&check.rule), &check.source);
    let (class, outcome) = (class(finding.outcome), finding.outcome.words());
    let (seen, cost) = (
        shown(&finding.seen),
        escape(finding.cost.unwrap_or_default()),
    );
    let drawing = drawing(finding);
    let (words, code) = finding.mend.map_or(("", ""), |it| (&*it.words, &*it.code));
    let (words, code) = (escape(words), escape(code));
    format!(
        "<section class=\"{class}\">\n<h2><code>{name}</code> {outcome}</h2>\n<p>{rule}</p>\n\
         <h3>Seen</h3>\n<p>{seen}</p>\n{drawing}<h3>Cost</h3>\n<p>{cost}</p>\n\
         <h3>Mend</h3>\n<p>{words}</p>\n<pre>{code}</pre>\n\
         <p class=\"quiet\">{source}</p>\n</section>\n"
    )
}

/// The requests of a finding as bars on one axis of time, and what each was told.
fn drawing(finding: &Finding) -> String {
    let attempts = &finding.attempts;
    let Some(first) = attempts.first() else {
        return String::new();
    };
    let (groups, cut) = groups(attempts);
    let ends = groups.iter().map(|group| group.span(first.sent)[1]);
    let length = ends.max().unwrap_or_default();
    let asked = shown(&first.asked);
    let key = match first.key.is_empty() {
        true => "without a key",
        false => "under one key",
    };
    let how = finding.how.as_deref().map(shown);
    let mut told = how.map_or(String::new(), |how| format!("<p>{how}</p>\n"));
    let _ = write!(
        told,
        "<p class=\"quiet\"><code>{asked}</code> {key}: a bar is a request, from \
         when it was sent until its answer</p>\n\
         <p class=\"axis\"><span>0</span><span>{} ms</span></p>\n<ol>\n",
        length.as_millis()
    );
    for group in &groups {
        let (bars, line) = (bars(group, first.sent, length), group.line(first.sent));
        let _ = writeln!(
            told,
            "<li>{bars}<span class=\"told\">{}</span></li>",
            shown(&line)
        );
    }
    if cut > 0 {
        let _ = writeln!(told, "<li class=\"quiet\">and {cut} lines more</li>");
    }
    told.push_str("</ol>\n");
    told
}

/// The bars of a group. Requests that were under way at the same time are in lanes of their own.
fn bars(group: &Group<'_>, began: Duration, length: Duration) -> String {
    let length = length.as_micros().max(1);
    let at = |time: Duration| time.saturating_sub(began).as_micros() * WIDTH / length;
    let class = |attempt: &Attempt| match &attempt.told {
        Ok(reply) if reply.is_success() => "made",
        Ok(reply) if reply.status < 500 => "refused",
        Ok(_) | Err(_) => "lost",
    };
    let mut lanes: Vec<Duration> = Vec::new();
    let mut drawn = String::new();
    for attempt in group.attempts.iter().take(BARS) {
        let is_free = |ended: &Duration| *ended <= attempt.sent;
        let lane = match lanes.iter().position(is_free) {
            Some(lane) => lane,
            None if lanes.len() < LANES => {
                lanes.push(attempt.ended);
                lanes.len() - 1
            }
            None => LANES - 1,
        };
        if let Some(ended) = lanes.get_mut(lane) {
            *ended = attempt.ended;
        }
        let start = at(attempt.sent).min(WIDTH - SEEN);
        let width = at(attempt.ended).saturating_sub(start).max(SEEN);
        let (y, class) = (lane * 8 + 1, class(attempt));
        let _ = write!(
            drawn,
            "<rect class=\"{class}\" x=\"{start}\" y=\"{y}\" width=\"{width}\" height=\"6\"/>"
        );
    }
    let height = lanes.len() * 8;
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" height=\"{height}\" preserveAspectRatio=\"none\" \
         aria-hidden=\"true\">{drawn}</svg>"
    )
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a test may stop at the first surprise"
    )]

    use super::*;
    use crate::{api::Reply, checks::CHECKS, checks::Flaw};

    const HOSTILE: &str = "</pre></style><script>alert(1)</script>\"'&\u{1b}\u{202e}";

    fn attempt(number: u32, span: [u64; 2], told: Result<(u16, &str), &str>) -> Attempt {
        let reply = |(status, body): (u16, &str)| Reply {
            status,
            headers: reqwest::header::HeaderMap::new(),
            body: body.as_bytes().to_vec(),
            outcome: format!("{status} {body}").into_bytes(),
        };
        let [sent, ended] = span.map(Duration::from_millis);
        Attempt {
            key: "key".to_owned(),
            number,
            credential: String::new(),
            asked: format!("POST /{HOSTILE}"),
            sent,
            ended,
            told: told.map(reply).map_err(str::to_owned),
        }
    }

    fn report(flaw: Flaw) -> Report {
        let racers = CHECKS.iter().find(|check| check.name == "racers").unwrap();
        let finding = |check, seen| Finding::new(check, seen, Duration::ZERO, Vec::new);
        Report {
            service: format!("http://localhost/{HOSTILE}"),
            findings: vec![
                finding(&CHECKS[0], Ok(HOSTILE.to_owned())),
                finding(racers, Err(flaw)),
            ],
        }
    }

    #[test]
    fn requests_are_bars_where_they_were_and_those_at_the_same_time_lie_in_lanes() {
        let attempts = vec![
            attempt(1, [1000, 2000], Ok((201, "one"))),
            attempt(1, [1200, 1300], Ok((409, "busy"))),
            attempt(1, [1250, 1400], Ok((409, "busy"))),
            attempt(1, [1350, 1500], Ok((409, "busy"))),
            attempt(1, [1500, 3000], Ok((201, "two"))),
            attempt(2, [2999, 3000], Err("the connection ended")),
        ];
        let page = report(Flaw::miscounted(2, 1, attempts)).html();
        for bar in [
            r#"<rect class="made" x="0" y="1" width="500" height="6"/></svg>"#,
            r#"<rect class="refused" x="100" y="1" width="50" height="6"/>"#,
            r#"<rect class="refused" x="125" y="9" width="75" height="6"/>"#,
            r#"<rect class="refused" x="175" y="1" width="75" height="6"/></svg>"#,
            r#"<rect class="made" x="250" y="1" width="750" height="6"/></svg>"#,
            // A short bar can be seen.
            r#"<rect class="lost" x="994" y="1" width="6" height="6"/></svg>"#,
        ] {
            assert!(page.contains(bar), "{bar}: {page}");
        }
        assert_eq!(page.matches("<rect ").count(), 6, "{page}");
        for told in [
            "<span>0</span><span>2000 ms</span>",
            "the request of 0 ms was at work until 1000 ms, and that of 500 ms did the work too",
            "200 to 500 ms: 409 busy, 3 times",
            "1999 to 2000 ms: another request: no reply: the connection ended",
            "INSERT INTO keys",
        ] {
            assert!(page.contains(told), "{told}: {page}");
        }
        // The verdict, what is wrong, and then all checks with the worst first.
        let places = [
            "<h1 class=\"unsafe\">NOT SAFE",
            "<section class=\"unsafe\">\n<h2><code>racers",
            "<table>",
        ];
        let places = places.map(|part| page.find(part).unwrap());
        assert!(places.is_sorted(), "{places:?}: {page}");
    }

    #[test]
    fn work_that_was_done_twice_is_told_before_a_request_that_was_refused() {
        let mut report = report(Flaw::miscounted(2, 1, Vec::new()));
        let reuse = CHECKS.iter().find(|check| check.name == "reuse_body");
        let refused = Err(Flaw::violated("200".to_owned()));
        report.findings[0] = Finding::new(reuse.unwrap(), refused, Duration::ZERO, Vec::new);
        let page = report.html();
        let places = ["<h2><code>racers", "<h2><code>reuse_body"];
        let places = places.map(|part| page.find(part).unwrap());
        assert!(places.is_sorted(), "{places:?}: {page}");
    }

    #[test]
    fn what_is_not_known_follows_the_heading() {
        let page = report(Flaw::Unknown("not in the config".to_owned())).html();
        for told in [
            "as far as 1 of 2 checks can see</h1>",
            "1 hold. Not known: racers</p>",
        ] {
            assert!(page.contains(told), "{told}: {page}");
        }
    }

    #[test]
    fn what_a_server_sends_is_text_on_the_page_and_in_the_xml_and_little_of_it() {
        let long = HOSTILE.repeat(100);
        let attempts = (0..5000).map(|number| {
            let body = if number % 2 == 0 { HOSTILE } else { &long };
            attempt(1, [number, number + 1000], Ok((500, body)))
        });
        let report = report(Flaw::miscounted(2, 1, attempts.collect()));
        let page = report.html();
        assert!(page.len() < 100_000, "{}", page.len());
        for text in [&page, &report.junit()] {
            assert!(!text.contains("<script"), "{text}");
            assert!(text.contains("&lt;script&gt;alert(1)"), "{text}");
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
        }
        for tag in ["</style>", "</pre>", "<h1 "] {
            assert_eq!(page.matches(tag).count(), 1, "{tag}");
        }
        // No file of another site is loaded.
        for loads in ["src=", "<link", "url(", "@import", "<iframe"] {
            assert!(!page.contains(loads), "{loads}");
        }
        assert!(page.contains("and 4976 lines more"), "{page}");
    }
}
