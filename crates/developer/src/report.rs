//! `charge-once report`: what is wrong with the client that uses a test account.
//!
//! Promise: the exit code is 1 after a critical finding or a warning, and 0 only if all
//! requests were looked at. Text of a client stays text, on the terminal and in the XML.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use charge_once_client::{Finding, Report, SentRequest};
use charge_once_service::settings::one_line;
use chrono::DateTime;

use super::{
    BoxError, print, say,
    service::{self, AFTER_HELP, Service},
    terminal::aligned,
};

const DEADLINE: Duration = Duration::from_secs(15);

/// The exit code if something is wrong that is more than a note.
const FOUND: u8 = 1;

/// The exit code if nothing is known.
pub const NOT_KNOWN: u8 = 2;

const CODES: &str = "\
Exit codes:
  0  nothing was found, or notes only
  1  a critical finding, or a warning
  2  not known: there is no report, or it is about a part of the requests";

/// Of which account, and where to.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{CODES}"))]
pub struct ReportArguments {
    #[command(flatten)]
    service: Service,
    #[command(flatten)]
    output: Output,
    /// Looks at the requests before this one: req_…
    #[arg(long, value_name = "REQUEST")]
    before: Option<String>,
}

/// Where a report goes, beside the terminal.
#[derive(Debug, clap::Args)]
pub struct Output {
    /// Also writes the findings to this file, as JUnit XML for your CI.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Runs it to its exit code. `kinds` are the types of findings that are looked for.
pub fn run(arguments: &ReportArguments, kinds: &[&str]) -> ExitCode {
    let mut code = 0;
    let read = async {
        let service = &arguments.service;
        let client = service.client(DEADLINE)?;
        let report = client.retrieve_report(arguments.before.as_deref()).await;
        let report = report.map_err(|error| service.explain(error))?;
        code = arguments.output.tell(&report, kinds)?;
        Ok(())
    };
    let told = service::block_on(read, || Err("stopped before it was done".into()));
    ended(told.map(|()| code))
}

/// The exit code, with the error said.
pub fn ended(code: Result<u8, BoxError>) -> ExitCode {
    let code = code.unwrap_or_else(|error| {
        say(&error.to_string());
        NOT_KNOWN
    });
    code.into()
}

impl Output {
    /// Prints a report, writes it to the file, and returns the exit code.
    pub fn tell(&self, report: &Report, kinds: &[&str]) -> Result<u8, BoxError> {
        print(&report.summary)?;
        for finding in &report.findings {
            print("")?;
            lines(finding).iter().try_for_each(|line| print(line))?;
        }
        if let Some(next) = &report.next {
            say(&format!(
                "there may be older requests: charge-once report --before {next}"
            ));
        }
        if let Some(path) = self.junit.as_deref() {
            let told = |error| format!("--junit: {} can't be written: {error}", path.display());
            std::fs::write(path, junit(report, kinds)).map_err(told)?;
        }
        let is_bad = report.findings.iter().any(is_more_than_a_note);
        // What is older was not looked at.
        Ok(match report.next {
            _ if is_bad => FOUND,
            Some(_) => NOT_KNOWN,
            None => 0,
        })
    }
}

fn is_more_than_a_note(finding: &Finding) -> bool {
    finding.severity != "note"
}

/// A finding as people read it.
fn lines(finding: &Finding) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", finding.severity, finding.title)];
    let sent: Vec<_> = finding.requests.iter().map(cells).collect();
    lines.extend(aligned(&sent).map(|line| format!("  {line}")));
    if let Some(more) = finding
        .count
        .checked_sub(sent.len())
        .filter(|more| *more > 0)
    {
        lines.push(format!("  and {more} more"));
    }
    if !finding.objects.is_empty() {
        lines.push(format!("  Made: {}", finding.objects.join(", ")));
    }
    if let Some(event) = &finding.event {
        lines.push(format!("  Webhook: {event}"));
    }
    lines.push(format!("  Why: {}", finding.why));
    lines.push(format!("  Change: {}", finding.change));
    lines
}

/// When, what, its key, its status, what became of it, and the fault that acted on it.
fn cells(request: &SentRequest) -> [String; 7] {
    let at = DateTime::from_timestamp_millis(request.at).unwrap_or_default();
    let key = request.idempotency_key.as_deref().unwrap_or("no key");
    let status = request.status.map(|status| status.to_string());
    [
        at.format("%H:%M:%S%.3f").to_string(),
        request.method.clone(),
        request.path.clone(),
        key.to_owned(),
        status.unwrap_or_else(|| "no reply".to_owned()),
        request.outcome.replace('_', " "),
        request.fault.clone().unwrap_or_default(),
    ]
}

/// A report as JUnit XML: a test case for each type of finding, which fails as the exit code says.
fn junit(report: &Report, kinds: &[&str]) -> String {
    let mut kinds = kinds.to_vec();
    // The service may be newer.
    for finding in &report.findings {
        if !kinds.contains(&&*finding.finding_type) {
            kinds.push(&finding.finding_type);
        }
    }
    let (mut cases, mut failures) = (String::new(), 0);
    for kind in &kinds {
        let of_kind = report
            .findings
            .iter()
            .filter(|one| one.finding_type == *kind);
        let found: Vec<_> = of_kind.collect();
        let text: Vec<_> = found.iter().map(|one| lines(one).join("\n")).collect();
        let text = escaped(&text.join("\n\n"));
        let told = match found.first() {
            None => String::new(),
            Some(first) if is_more_than_a_note(first) => {
                failures += 1;
                let (title, severity) = (escaped(&first.title), escaped(&first.severity));
                format!("<failure message=\"{title}\" type=\"{severity}\">{text}</failure>")
            }
            Some(_) => format!("<system-out>{text}</system-out>"),
        };
        let name = escaped(kind);
        cases.push_str(&format!(
            "<testcase classname=\"charge-once\" name=\"{name}\">{told}</testcase>\n"
        ));
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites>\n<testsuite name=\"charge-once report\" tests=\"{}\" failures=\"{failures}\">\n\
         {cases}</testsuite>\n</testsuites>\n",
        kinds.len()
    )
}

/// Text for an element or a quoted attribute. XML has no way to write control characters.
fn escaped(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(one_line).collect();
    let mut escaped = lines.join("\n");
    for (character, entity) in [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
        ('\'', "&apos;"),
    ] {
        escaped = escaped.replace(character, entity);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_wrote_stays_text_in_the_xml() {
        let hostile = "</failure>&\"'<\u{1b}[31m\u{0}";
        let finding = Finding {
            change: hostile.to_owned(),
            count: 1,
            event: None,
            objects: Vec::new(),
            requests: vec![SentRequest {
                id: "req_1".to_owned(),
                at: 1_700_000_000_123,
                duration: 7,
                fault: Some("reply_lost".to_owned()),
                idempotency_key: Some(hostile.to_owned()),
                method: "POST".to_owned(),
                outcome: "in_use".to_owned(),
                path: hostile.to_owned(),
                status: None,
            }],
            severity: "warning".to_owned(),
            title: hostile.to_owned(),
            finding_type: hostile.to_owned(),
            why: hostile.to_owned(),
        };
        let report = Report {
            faults: 1,
            findings: vec![finding],
            next: None,
            requests: 1,
            summary: String::new(),
        };
        let xml = junit(&report, &["no_key"]);
        assert_eq!(xml.matches("<testcase ").count(), 2, "{xml}");
        assert_eq!(xml.matches("</failure>").count(), 1, "{xml}");
        assert!(
            xml.contains("&lt;/failure&gt;&amp;&quot;&apos;&lt;"),
            "{xml}"
        );
        assert!(xml.contains("22:13:20.123  POST  "), "{xml}");
        assert!(xml.contains("  no reply  in use  reply_lost\n"), "{xml}");
        assert!(!xml.chars().any(|c| c.is_control() && c != '\n'), "{xml}");
    }
}
