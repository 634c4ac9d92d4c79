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
    /// The rule is broken.
    Violated,
    /// The config doesn't have what the check needs, or the API promises nothing.
    NotKnown,
}

/// One check and what it saw.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The check's name.
    pub name: &'static str,
    /// What must hold.
    pub rule: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// How much the rule weighs, or, if it is broken, what was seen.
    pub severity: Severity,
    /// How it ended.
    pub outcome: Outcome,
    /// What was seen.
    pub seen: String,
    /// What a violation can cost.
    pub cost: &'static str,
    /// How to mend it.
    pub mend: &'static str,
    /// How long the check took.
    pub milliseconds: u64,
}

impl Finding {
    pub(crate) fn new(check: &Check, seen: Seen, took: Duration) -> Self {
        let (outcome, severity, seen) = match seen {
            Ok(seen) => (Outcome::Holds, check.severity, seen),
            Err(Flaw::Violated(seen)) => (Outcome::Violated, check.severity, seen),
            Err(Flaw::Lesser(seen)) => (Outcome::Violated, Severity::Should, seen),
            Err(Flaw::Unknown(seen)) => (Outcome::NotKnown, check.severity, seen),
        };
        Self {
            name: check.name,
            rule: check.rule,
            source: check.source,
            severity,
            outcome,
            seen,
            cost: check.cost,
            mend: check.mend,
            milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.outcome, self.severity) {
            (Outcome::Holds, _) => "holds",
            (Outcome::Violated, Severity::Must) => "VIOLATES A MUST",
            (Outcome::Violated, Severity::Should) => "violates a SHOULD",
            (Outcome::NotKnown, _) => "not known",
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
    /// The findings that ended so.
    pub fn ended(&self, outcome: Outcome) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |f| f.outcome == outcome)
    }

    /// Whether a MUST is violated.
    #[must_use]
    pub fn violates_a_must(&self) -> bool {
        self.ended(Outcome::Violated)
            .any(|finding| finding.severity == Severity::Must)
    }

    /// A line for each check, and then what is wrong, what it can cost, and how to mend it.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let seen = finding.seen.lines().next().unwrap_or_default();
            let seen: String = seen.chars().take(100).collect();
            let (name, verdict) = (finding.name, finding.verdict());
            let _ = writeln!(text, "{name:<18} {verdict:<17} {seen}");
        }
        for finding in self.ended(Outcome::Violated) {
            let Finding {
                name,
                rule,
                source,
                seen,
                cost,
                mend,
                ..
            } = finding;
            let verdict = finding.verdict();
            let _ = write!(
                text,
                "\n{name} {verdict}: {rule}\n  seen    {seen}\n  cost    {cost}\n  mend    {mend}\n  \
                 source  {source}\n"
            );
        }
        let count = |outcome| self.ended(outcome).count();
        let (holds, violated) = (count(Outcome::Holds), count(Outcome::Violated));
        let unknown = count(Outcome::NotKnown);
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
        let failures = self
            .ended(Outcome::Violated)
            .filter(|finding| finding.severity == Severity::Must)
            .count();
        let (tests, skipped) = (self.findings.len(), self.ended(Outcome::NotKnown).count());
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"charge-once-conform\" \
             tests=\"{tests}\" failures=\"{failures}\" skipped=\"{skipped}\">\n"
        );
        for finding in &self.findings {
            let (seconds, thousandths) = (finding.milliseconds / 1000, finding.milliseconds % 1000);
            let (name, rule, seen) = (finding.name, escape(finding.rule), escape(&finding.seen));
            let body = match (finding.outcome, finding.severity) {
                (Outcome::Violated, Severity::Must) => {
                    format!("<failure message=\"{rule}\">{seen}</failure>")
                }
                (Outcome::NotKnown, _) => format!("<skipped message=\"{seen}\"/>"),
                (Outcome::Holds, _) | (Outcome::Violated, Severity::Should) => {
                    let verdict = finding.verdict();
                    format!("<system-out>{verdict}: {seen}</system-out>")
                }
            };
            let _ = writeln!(
                xml,
                "  <testcase classname=\"conform\" name=\"{name}\" \
                 time=\"{seconds}.{thousandths:03}\">{body}</testcase>"
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
