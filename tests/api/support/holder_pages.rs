//! The page of a card's holder, as a browser opens it that follows no redirect.

use reqwest::redirect::Policy;

use crate::support::{prelude::*, racers::definite};

pub fn browse(method: Method, url: &str) -> RequestBuilder {
    let browser = http_client_builder().unwrap().redirect(Policy::none());
    browser.build().unwrap().request(method, url)
}

pub async fn open(url: &str) -> Answer {
    Answer::of(browse(Method::GET, url)).await
}

/// Presses one of its buttons: `complete` or `fail`.
pub async fn press(url: &str, outcome: &str) -> Answer {
    send(url, &format!("outcome={outcome}")).await
}

/// Fifty answers of a holder at once, at two addresses of one page, each sent until the reply is a
/// definite one.
pub async fn fifty_answers(pages: [String; 2]) -> Vec<Answer> {
    all_at_once(50, |number| {
        let page = pages[number % 2].clone();
        let outcome = if number % 4 < 2 { "complete" } else { "fail" };
        async move { definite(|| press(&page, outcome)).await }
    })
    .await
}

pub async fn send(url: &str, form: &str) -> Answer {
    let request = browse(Method::POST, url).header("content-type", FORM);
    Answer::of(request.body(form.to_owned())).await
}

/// Where an intent sends its holder.
pub fn page_of(answer: &Answer) -> String {
    let url = &answer.json()["next_action"]["redirect_to_url"]["url"];
    assert!(url.is_string(), "no page: {answer:?}");
    url.as_str().unwrap().to_owned()
}
