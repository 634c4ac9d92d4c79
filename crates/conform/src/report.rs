//! What was found: a table for people, JSON, and JUnit XML. `page.rs` has the page.

use std::{fmt::Write, time::Duration};

use serde::Serialize;

use crate::{
    checks::{Check, Flaw, Mend, Seen, Severity, cost, mend},
    history::{Attempt, lines},
};

/// How a check ended, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// An effect can happen twice, be lost, or be of another client.
    Unsafe,
    /// Clients can't know what happened, or a mistake of theirs stays hidden.
    Unclear,
    /// The config doesn't have what the check needs, or the API promises nothing.
    NotKnown,
    /// The rule holds, as far as it was tried.
    Holds,
}

impl Grade {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Unsafe => "UNSAFE",
            Self::Unclear => "unclear",
            Self::NotKnown => "not known",
        }
    }

    /// Whether the rule is broken.
    #[must_use]
    pub fn is_violation(self) -> bool {
        matches!(self, Self::Unsafe | Self::Unclear)
    }
}

/// One check and what it saw.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The check.
    #[serde(flatten)]
    pub check: &'static Check,
    /// How it ended.
    pub outcome: Grade,
    /// What was seen.
    pub seen: String,
    /// Which requests led to a violation: what was sent when, and what came back.
    pub why: Vec<String>,
    /// How two requests came to do the work of one, and the requests: `why`, to be drawn.
    #[serde(skip)]
    pub(crate) how: Option<String>,
    #[serde(skip)]
    pub(crate) attempts: Vec<Attempt>,
    /// What a violation can cost.
    pub cost: Option<&'static str>,
    /// How to mend a violation.
    pub mend: Option<&'static Mend>,
    /// How long the check took.
    pub milliseconds: u128,
}

impl Finding {
    /// `last`: the requests under the key that was used last.
    pub(crate) fn new(
        check: &'static Check,
        seen: Seen,
        took: Duration,
        last: impl FnOnce() -> Vec<Attempt>,
    ) -> Self {
        let finding = |outcome, seen| Self {
            check,
            outcome,
            seen,
            why: Vec::new(),
            how: None,
            attempts: Vec::new(),
            cost: None,
            mend: None,
            milliseconds: took.as_millis(),
        };
        match seen {
            Ok(seen) => finding(Grade::Holds, seen),
            Err(Flaw::Unknown(seen)) => finding(Grade::NotKnown, seen),
            Err(Flaw::Wrong(fault)) => {
                let outcome = match fault.severity.unwrap_or(check.severity) {
                    Severity::Unsafe => Grade::Unsafe,
                    Severity::Unclear => Grade::Unclear,
                };
                let attempts = match fault.attempts.is_empty() {
                    true => last(),
                    false => fault.attempts,
                };
                Self {
                    why: fault.how.iter().cloned().chain(lines(&attempts)).collect(),
                    how: fault.how,
                    attempts,
                    cost: Some(cost(fault.cost.unwrap_or(&check.cost))),
                    mend: mend(fault.mend.unwrap_or(&check.mend)),
                    ..finding(outcome, fault.seen)
                }
            }
        }
    }
}

/// The names of the sources, with their links.
pub(crate) const SOURCES: [(&str, &str); 8] = [
    (
        "draft",
        "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07",
    ),
    ("Stripe", "https://docs.stripe.com/api/idempotent_requests"),
    (
        "Stripe v2",
        "https://docs.stripe.com/api-v2-overview#idempotency",
    ),
    (
        "ACP",
        "https://github.com/agentic-commerce-protocol/agentic-commerce-protocol/blob/main/rfcs/rfc.agentic_checkout.md",
    ),
    (
        "charge-once",
        "https://github.com/charge-once/charge-once/blob/main/docs/contract.md",
    ),
    ("RFC 9457", "https://www.rfc-editor.org/rfc/rfc9457"),
    ("Stripe webhooks", "https://docs.stripe.com/webhooks"),
    (
        "Standard Webhooks",
        "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
    ),
];

impl Finding {
    /// What is wrong and why, what it can cost, and how to mend it.
    fn story(&self) -> String {
        let Check {
            name, rule, source, ..
        } = self.check;
        let (outcome, seen) = (self.outcome.words(), &self.seen);
        let (why, cost) = (self.why.join("\n          "), self.cost.unwrap_or_default());
        let mend = self.mend.map_or("", |mend| &mend.words);
        format!(
            "{name} {outcome}: {rule}\n  seen    {seen}\n  why     {why}\n  cost    {cost}\n  \
             mend    {mend}\n  source  {source}\n"
        )
    }
}

/// All findings, in the order of the checks.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The URL that was asked, without a password.
    pub service: String,
    /// One for each check that ran.
    pub findings: Vec<Finding>,
}

impl Report {
    fn count(&self, grade: Grade) -> usize {
        self.names(|one| one == grade).len()
    }

    /// The names of the checks with such a grade.
    #[must_use]
    pub fn names(&self, grade: impl Fn(Grade) -> bool) -> Vec<&'static str> {
        let ended = self.findings.iter().filter(|one| grade(one.outcome));
        ended.map(|finding| finding.check.name.as_str()).collect()
    }

    /// Whether a check found something unsafe.
    #[must_use]
    pub fn is_unsafe(&self) -> bool {
        self.count(Grade::Unsafe) > 0
    }

    pub(crate) fn verdict(&self) -> String {
        let all = self.findings.len();
        let violated = self.names(|grade| grade == Grade::Unsafe);
        if !violated.is_empty() {
            let (count, names) = (violated.len(), violated.join(", "));
            return format!("NOT SAFE TO RETRY: unsafe in {count} of {all} checks: {names}");
        }
        let unknown = self.names(|grade| grade == Grade::NotKnown);
        let ran = all - unknown.len();
        let mut verdict =
            format!("Nothing unsafe was found, as far as {ran} of {all} checks can see");
        if !unknown.is_empty() {
            verdict.push_str(". Not known: ");
            verdict.push_str(&unknown.join(", "));
        }
        verdict
    }

    /// The findings, the worst first, which is work that was done twice.
    pub(crate) fn sorted(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        let repeated = Some(cost("repeated"));
        findings.sort_by_key(|finding| (finding.outcome, finding.cost != repeated));
        findings
    }

    /// The number of checks with each grade.
    pub(crate) fn sum(&self) -> String {
        let not_safe = self.count(Grade::Unsafe);
        let unclear = self.count(Grade::Unclear);
        let (unknown, holds) = (self.count(Grade::NotKnown), self.count(Grade::Holds));
        format!("{not_safe} unsafe, {unclear} unclear, {unknown} not known, {holds} hold")
    }

    /// A verdict, a line for each check, and then what is wrong and why, what it can cost, and how
    /// to mend it. The worst is first.
    #[must_use]
    pub fn table(&self) -> String {
        let findings = self.sorted();
        let mut text = format!("{}\n\n", self.verdict());
        for finding in &findings {
            let seen = finding.seen.lines().next().unwrap_or_default();
            let seen: String = seen.chars().take(100).collect();
            let (name, outcome) = (&finding.check.name, finding.outcome.words());
            let _ = writeln!(text, "{name:<18} {outcome:<10} {seen}");
        }
        let violated = findings.iter().filter(|one| one.outcome.is_violation());
        for finding in violated.clone() {
            let _ = write!(text, "\n{}", finding.story());
        }
        let _ = writeln!(text, "\n{}", self.sum());
        if violated.count() > 0 {
            text.push('\n');
            for (name, link) in SOURCES {
                let _ = writeln!(text, "{name:<17} {link}");
            }
        }
        text
    }

    /// The findings as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// The findings as JUnit XML: what is unsafe is a failure, and what is not known is skipped.
    /// What is unclear passes, with what was seen as its output.
    #[must_use]
    pub fn junit(&self) -> String {
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"charge-once-conform\" \
             tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
            self.findings.len(),
            self.count(Grade::Unsafe),
            self.count(Grade::NotKnown)
        );
        for finding in &self.findings {
            let (check, outcome) = (finding.check, finding.outcome);
            let (rule, seen) = (escape(&check.rule), escape(&finding.seen));
            let story = escape(&finding.story());
            let body = match outcome {
                Grade::Unsafe => format!("<failure message=\"{rule}\">{story}</failure>"),
                Grade::Unclear => format!("<system-out>{story}</system-out>"),
                Grade::NotKnown => format!("<skipped message=\"{seen}\"/>"),
                Grade::Holds => format!("<system-out>holds: {seen}</system-out>"),
            };
            let (seconds, thousandths) = (finding.milliseconds / 1000, finding.milliseconds % 1000);
            let _ = writeln!(
                xml,
                "  <testcase classname=\"conform\" name=\"{}\" \
                 time=\"{seconds}.{thousandths:03}\">{body}</testcase>",
                check.name
            );
        }
        xml.push_str("</testsuite>\n");
        xml
    }
}

/// A text without control characters, which would change a terminal: it quotes what the server has
/// sent.
#[must_use]
pub fn harmless(text: &str) -> String {
    let shown = text.chars().map(|letter| match letter {
        '\n' => letter,
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => '\u{fffd}',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        _ if letter.is_control() => '\u{fffd}',
        _ => letter,
    });
    shown.collect()
}

/// A text as XML 1.0 and HTML may hold it, in an element or a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in harmless(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_server_sends_does_not_change_the_terminal() {
        let told = "holds\n\u{1b}[2J\r\u{9b}1A\u{202e}x\u{ffff}\n";
        let shown = "holds\n\u{fffd}[2J\u{fffd}\u{fffd}1A\u{fffd}x\u{fffd}\n";
        assert_eq!(super::harmless(told), shown);
    }
}
