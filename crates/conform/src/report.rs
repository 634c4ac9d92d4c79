//! What was found: a table for people, JSON, and JUnit XML.

use std::{fmt::Write, time::Duration};

use serde::Serialize;

use crate::checks::{Check, Flaw, Seen, Severity};

/// How a check ended, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// An effect can happen twice, be lost, or be of another client.
    ViolatesMust,
    /// Clients can't know what happened, or a mistake of theirs stays hidden.
    ViolatesShould,
    /// The config doesn't have what the check needs, or the API promises nothing.
    NotKnown,
    /// The rule holds, as far as it was tried.
    Holds,
}

impl Grade {
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
    pub outcome: Grade,
    /// What was seen.
    pub seen: String,
    /// Which requests led to a violation: what was sent when, and what came back.
    pub why: Vec<String>,
    /// What a violation can cost.
    pub cost: Option<&'static str>,
    /// How to mend a violation.
    pub mend: Option<&'static str>,
    /// How long the check took.
    pub milliseconds: u128,
}

impl Finding {
    pub(crate) fn new(check: &'static Check, seen: Seen, took: Duration) -> Self {
        let finding = |outcome, seen| Self {
            check,
            outcome,
            seen,
            why: Vec::new(),
            cost: None,
            mend: None,
            milliseconds: took.as_millis(),
        };
        match seen {
            Ok(seen) => finding(Grade::Holds, seen),
            Err(Flaw::Unknown(seen)) => finding(Grade::NotKnown, seen),
            Err(Flaw::Wrong(fault)) => {
                let outcome = match fault.severity.unwrap_or(check.severity) {
                    Severity::Must => Grade::ViolatesMust,
                    Severity::Should => Grade::ViolatesShould,
                };
                Self {
                    why: fault.why,
                    cost: Some(fault.cost.unwrap_or(check.cost)),
                    mend: Some(fault.mend.unwrap_or(check.mend)),
                    ..finding(outcome, fault.seen)
                }
            }
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
    fn count(&self, grade: Grade) -> usize {
        self.names(|one| one == grade).len()
    }

    /// The names of the checks that ended so.
    #[must_use]
    pub fn names(&self, grade: impl Fn(Grade) -> bool) -> Vec<&'static str> {
        let ended = self.findings.iter().filter(|one| grade(one.outcome));
        ended.map(|finding| finding.check.name).collect()
    }

    /// Whether a MUST is violated.
    #[must_use]
    pub fn violates_a_must(&self) -> bool {
        self.count(Grade::ViolatesMust) > 0
    }

    fn verdict(&self) -> String {
        let all = self.findings.len();
        let violated = self.names(|grade| grade == Grade::ViolatesMust);
        if !violated.is_empty() {
            let (count, names) = (violated.len(), violated.join(", "));
            return format!(
                "NOT SAFE TO RETRY: a MUST is violated in {count} of {all} checks: {names}"
            );
        }
        let unknown = self.names(|grade| grade == Grade::NotKnown);
        let ran = all - unknown.len();
        let mut verdict = format!("No MUST is violated, as far as {ran} of {all} checks can see");
        if !unknown.is_empty() {
            verdict.push_str(". Not known: ");
            verdict.push_str(&unknown.join(", "));
        }
        verdict
    }

    /// A verdict, a line for each check, and then what is wrong and why, what it can cost, and how
    /// to mend it. The worst is first.
    #[must_use]
    pub fn table(&self) -> String {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| finding.outcome);
        let mut text = format!("{}\n\n", self.verdict());
        for finding in &findings {
            let seen = finding.seen.lines().next().unwrap_or_default();
            let seen: String = seen.chars().take(100).collect();
            let (name, outcome) = (finding.check.name, finding.outcome.words());
            let _ = writeln!(text, "{name:<18} {outcome:<17} {seen}");
        }
        for finding in findings.iter().filter(|one| one.outcome.is_violation()) {
            let Check {
                name, rule, source, ..
            } = finding.check;
            let outcome = finding.outcome.words();
            let (seen, why) = (&finding.seen, finding.why.join("\n          "));
            let [cost, mend] = [finding.cost, finding.mend].map(Option::unwrap_or_default);
            let _ = write!(
                text,
                "\n{name} {outcome}: {rule}\n  seen    {seen}\n  why     {why}\n  cost    {cost}\n  \
                 mend    {mend}\n  source  {source}\n"
            );
        }
        let musts = self.count(Grade::ViolatesMust);
        let shoulds = self.count(Grade::ViolatesShould);
        let (unknown, holds) = (self.count(Grade::NotKnown), self.count(Grade::Holds));
        let _ = writeln!(
            text,
            "\n{musts} violate a MUST, {shoulds} violate a SHOULD, {unknown} not known, {holds} hold"
        );
        if musts + shoulds > 0 {
            let _ = write!(text, "\n{LEGEND}");
        }
        text
    }

    /// The findings as JSON, which all of it can be written as.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// The findings as JUnit XML: a violated MUST is a failure, and what is not known is skipped. A
    /// violated SHOULD passes, with what was seen as its output.
    #[must_use]
    pub fn junit(&self) -> String {
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"charge-once-conform\" \
             tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
            self.findings.len(),
            self.count(Grade::ViolatesMust),
            self.count(Grade::NotKnown)
        );
        for finding in &self.findings {
            let (check, outcome) = (finding.check, finding.outcome);
            let mut seen = finding.seen.clone();
            for line in &finding.why {
                let _ = write!(seen, "\n{line}");
            }
            let (rule, seen) = (escape(check.rule), escape(&seen));
            let body = match outcome {
                Grade::ViolatesMust => format!("<failure message=\"{rule}\">{seen}</failure>"),
                Grade::NotKnown => format!("<skipped message=\"{seen}\"/>"),
                Grade::Holds | Grade::ViolatesShould => {
                    format!("<system-out>{}: {seen}</system-out>", outcome.words())
                }
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
