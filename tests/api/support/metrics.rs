//! What Prometheus would read.

use crate::support::prelude::*;

#[derive(Debug)]
pub struct Scrape {
    pub text: String,
    /// By name, with labels: `name{label="value"}`.
    pub values: BTreeMap<String, f64>,
    pub types: BTreeMap<String, String>,
}

impl Scrape {
    pub async fn of(scraper: &Client) -> Self {
        let answer = scraper.get("/metrics").await;
        assert_eq!(answer.status, 200);
        let kind = answer.header("content-type").unwrap();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        let text = String::from_utf8(answer.body).unwrap();
        let (mut values, mut types) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(described) = line.strip_prefix("# TYPE ") {
                let (name, kind) = described.split_once(' ').unwrap();
                types.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
                assert!(values.insert(series.to_owned(), value).is_none(), "{line}");
            }
        }
        Self {
            text,
            values,
            types,
        }
    }

    /// The value of a series; 0 where there is none.
    pub fn value(&self, series: &str) -> f64 {
        self.values.get(series).copied().unwrap_or(0.0)
    }

    /// The names of a metric's labels, without the one of a histogram's buckets.
    pub fn labels(&self, metric: &str) -> BTreeSet<String> {
        let of_metric = |series: &&String| {
            let name = series.split('{').next().unwrap();
            let suffix = name.strip_prefix(metric);
            suffix.is_some_and(|suffix| ["", "_bucket", "_sum", "_count"].contains(&suffix))
        };
        let labels = self.values.keys().filter(of_metric).flat_map(|series| {
            let labels = series.split_once('{').map_or("", |(_, labels)| labels);
            let pairs = labels.split("\",");
            pairs.filter_map(|pair| Some(pair.split_once("=\"")?.0.to_owned()))
        });
        labels.filter(|label| label != "le").collect()
    }
}

/// Scrapes until a series is above a value.
pub async fn exceeds(scraper: &Client, series: &str, value: f64) {
    let is_above = async || Scrape::of(scraper).await.value(series) > value;
    eventually(&format!("{series} is above {value}"), is_above).await;
}

/// Scrapes until a series has a value.
pub async fn reaches(scraper: &Client, series: &str, value: f64) {
    eventually(&format!("{series} is {value}"), || async {
        Scrape::of(scraper).await.values.get(series) == Some(&value)
    })
    .await;
}
