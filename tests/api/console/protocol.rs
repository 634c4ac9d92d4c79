//! The protocol, step by step.

use std::collections::BTreeSet;

use super::*;

const PATH: &str = "/console/protocol";

/// The links of a page to scenarios and steps.
fn links(page: &str) -> BTreeSet<String> {
    let links = page.split("href=\"").skip(1);
    let links = links.filter_map(|rest| rest.split(['"', '#']).next());
    let links = links.filter(|link| link.starts_with("/console/protocol?"));
    links.map(|link| link.replace("&amp;", "&")).collect()
}

#[tokio::test]
async fn each_step_is_a_link_that_needs_no_session_and_the_last_one_shows_the_double() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::signed_out(&server.client);
    let first = visit.page(PATH).await;
    first.must_have(&[
        "<strong>Step 0 of ",
        "No charge yet",
        "no row",
        "rel=\"next\"",
    ]);
    first.must_lack(&["rel=\"prev\"", "Sign out"]);
    let beginnings = links(&first).into_iter();
    let beginnings: Vec<_> = beginnings
        .filter(|link| link.ends_with("&step=0"))
        .collect();
    assert!(beginnings.len() > 8, "{beginnings:?}");
    for beginning in beginnings {
        let scenario = beginning.strip_suffix('0').unwrap();
        let all = links(&visit.page(&beginning).await);
        let mut steps = all.iter().filter(|link| link.starts_with(scenario)).count();
        assert!(steps > 5, "{beginning}: {all:?}");
        for step in 0..steps {
            let page = visit.page(&format!("{scenario}{step}")).await;
            assert_eq!(page.matches("aria-current=\"step\"").count(), 1, "{page}");
            assert_eq!(page.contains("rel=\"prev\""), step > 0);
            assert_eq!(page.contains("rel=\"next\""), step + 1 < steps);
        }
        steps -= 1;
        let last = visit.page(&format!("{scenario}{steps}")).await;
        last.must_have(&[
            "says bad\">2 charges: the customer paid twice",
            "says good\">1 charge: the customer paid once",
        ]);
        // The next event, but after the last one.
        let is_last = beginning.contains("scenario=provider-timeout.");
        assert_eq!(last.contains(" →</a>"), !is_last, "{last}");
    }
}

#[tokio::test]
async fn a_scenario_or_step_that_is_not_there_is_a_mistake_of_the_address() {
    let (_server, visit) = visited().await;
    let page = visit.page(PATH).await;
    page.must_have(&[
        "Sign out",
        "href=\"/console/protocol\" aria-current=\"page\"",
    ]);
    for wrong in [
        "scenario=unknown",
        "scenario=%3Cscript%3Ealert",
        "scenario=",
        "step=99",
        "step=-1",
        "step=x",
        "step=",
    ] {
        let answer = visit.get(&format!("{PATH}?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
        let page = text(&answer.body);
        page.must_have(&["no such scenario or step"]);
        page.must_lack(&["alert"]);
    }
}
