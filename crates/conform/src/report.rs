//! What was found: a table for people, JSON, and JUnit XML.

use std::{fmt::Write, time::Duration};

use serde::Serialize;

use crate::checks::{Check, Flaw, Seen, Severity};

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The rule holds, as far as it was tried.
    Holds,
    /// An effect can happen twice, be lost, or be of another client.
    ViolatesMust,
    /// Clients can't know what happened, or a mistake of theirs stays hidden.
    ViolatesShould,
    /// The config doesn't have what the check needs, or the API promises nothing.
    NotKnown,
}

impl Outcome {
    fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::ViolatesMust => "VIOLATES A MUST",
            Self::ViolatesShould => "violates a SHOULD",
            Self::NotKnown => "not known",
        }
    }

    /// Whether the rule is broken.
    #[must_use]
    pub fn is_violation(self) -> bool {
        matches!(self, Self::ViolatesMust | Self::ViolatesShould)
    }
}

/// One check and what it saw.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The check.
    #[serde(flatten)]
    pub check: &'static Check,
    /// How it ended.
    pub outcome: Outcome,
    /// What was seen.
    pub seen: String,
    /// How long the check took.
    pub milliseconds: u128,
}

impl Finding {
    pub(crate) fn new(check: &'static Check, seen: Seen, took: Duration) -> Self {
        let (outcome, seen) = match (seen, check.severity) {
            (Ok(seen), _) => (Outcome::Holds, seen),
            (Err(Flaw::Violated(seen)), Severity::Must) => (Outcome::ViolatesMust, seen),
            (Err(Flaw::Violated(seen)), Severity::Should) | (Err(Flaw::Lesser(seen)), _) => {
                (Outcome::ViolatesShould, seen)
            }
            (Err(Flaw::Unknown(seen)), _) => (Outcome::NotKnown, seen),
        };
        Self {
            check,
            outcome,
            seen,
            milliseconds: took.as_millis(),
        }
    }
}

/// Links of the sources, and of the files that `mend` names.
const LEGEND: &str = "\
draft        https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07
Stripe       https://docs.stripe.com/api/idempotent_requests
ACP          https://github.com/agentic-commerce-protocol/agentic-commerce-protocol/blob/main/rfcs/rfc.agentic_checkout.md
charge-once  https://github.com/charge-once/charge-once/blob/main/docs/contract.md
files        https://github.com/charge-once/charge-once/blob/main/
";

/// All findings, in the order of the checks.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// One for each check that ran.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The findings whose outcome is one of these.
    fn ended(&self, outcome: impl Fn(Outcome) -> bool) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(move |finding| outcome(finding.outcome))
    }

    /// The names of the checks that ended so.
    #[must_use]
    pub fn names(&self, outcome: impl Fn(Outcome) -> bool) -> Vec<&'static str> {
        self.ended(outcome)
            .map(|finding| finding.check.name)
            .collect()
    }

    /// Whether a MUST is violated.
    #[must_use]
    pub fn violates_a_must(&self) -> bool {
        self.ended(|outcome| outcome == Outcome::ViolatesMust)
            .next()
            .is_some()
    }

    /// A line for each check, and then what is wrong, what it can cost, and how to mend it.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        for Finding {
            check,
            outcome,
            seen,
            ..
        } in &self.findings
        {
            let seen = seen.lines().next().unwrap_or_default();
            let seen: String = seen.chars().take(100).collect();
            let _ = writeln!(text, "{:<18} {:<17} {seen}", check.name, outcome.words());
        }
        for Finding {
            check,
            outcome,
            seen,
            ..
        } in self.ended(Outcome::is_violation)
        {
            let Check {
                name,
                rule,
                source,
                cost,
                mend,
                ..
            } = check;
            let outcome = outcome.words();
            let _ = write!(
                text,
                "\n{name} {outcome}: {rule}\n  seen    {seen}\n  cost    {cost}\n  mend    {mend}\n  \
                 source  {source}\n"
            );
        }
        let violated = self.ended(Outcome::is_violation).count();
        let unknown = self.ended(|outcome| outcome == Outcome::NotKnown).count();
        let holds = self.findings.len() - violated - unknown;
        let _ = writeln!(
            text,
            "\n{holds} hold, {violated} violated, {unknown} not known"
        );
        if violated > 0 {
            let _ = write!(text, "\n{LEGEND}");
        }
        text
    }

    /// The findings as JSON.
    ///
    /// # Errors
    ///
    /// Never, as all of it can be written as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// The findings as JUnit XML: a violated MUST is a failure, and what is not known is skipped. A
    /// violated SHOULD passes, with what was seen as its output.
    #[must_use]
    pub fn junit(&self) -> String {
        let count = |outcome| self.ended(|one| one == outcome).count();
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"charge-once-conform\" \
             tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
            self.findings.len(),
            count(Outcome::ViolatesMust),
            count(Outcome::NotKnown)
        );
        for Finding {
            check,
            outcome,
            seen,
            milliseconds,
        } in &self.findings
        {
            let (rule, seen) = (escape(check.rule), escape(seen));
            let body = match outcome {
                Outcome::ViolatesMust => format!("<failure message=\"{rule}\">{seen}</failure>"),
                Outcome::NotKnown => format!("<skipped message=\"{seen}\"/>"),
                Outcome::Holds | Outcome::ViolatesShould => {
                    format!("<system-out>{}: {seen}</system-out>", outcome.words())
                }
            };
            let (seconds, thousandths) = (milliseconds / 1000, milliseconds % 1000);
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

/// A text as XML 1.0 may hold it.
fn escape(text: &str) -> String {
    let is_held = |c: &char| *c >= ' ' || matches!(c, '\n' | '\t') && *c != '\u{7f}';
    let mut escaped = String::new();
    for c in text.chars().filter(is_held) {
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
