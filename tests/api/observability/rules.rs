//! The rules, without a server: their form, their thresholds, and that what they name exists.

use charge_once::telemetry::catalog::METRICS;
use charge_once_service::prometheus::PROCESS_METRICS;

use crate::support::{prelude::*, prometheus::promtool};

fn succeeds(output: &Output) {
    let told = [&*output.stdout, &output.stderr].map(String::from_utf8_lossy);
    assert!(output.status.success(), "{}", told.concat());
}

#[test]
fn promtool_finds_no_fault_in_the_configuration_and_the_rules() {
    succeeds(&promtool(&["check", "config", "prometheus.yml"]));
    succeeds(&promtool(&["check", "rules", "rules.yml", "alerts.yml"]));
}

#[test]
fn each_alert_fires_at_its_threshold_and_not_before() {
    succeeds(&promtool(&["test", "rules", "tests/alerts.yml"]));
    let tests = read("deploy/prometheus/tests/alerts.yml");
    for alert in alerts() {
        assert!(tests.contains(&format!("- name: {alert}, ")), "{alert}");
        let fires = format!("alertname=\"{alert}\",job=\"charge-once\"");
        assert!(tests.contains(&fires), "{alert}");
    }
}

#[test]
fn rules_dashboard_and_runbook_name_metrics_that_exist() {
    let of_process = PROCESS_METRICS.iter().map(|(name, _, _)| *name);
    let served = METRICS.iter().map(|metric| metric.name);
    let served: BTreeSet<_> = served.chain(of_process).collect();
    // What a rule records has a colon before the metric's name.
    let named = Regex::new(r"(?:^|[^:\w])((?:charge_once|process)_\w+)").unwrap();
    for file in [
        "deploy/prometheus/rules.yml",
        "deploy/prometheus/alerts.yml",
        "deploy/prometheus/tests/alerts.yml",
        "deploy/grafana/dashboards/charge-once.json",
        "docs/runbook.md",
    ] {
        let mut text = read(file);
        if file.ends_with(".md") {
            // Roles of the database have names like those of metrics.
            let queries = text.lines().filter(|line| line.contains("promtool query"));
            text = queries.collect();
        }
        let mut found = 0;
        for captured in named.captures_iter(&text) {
            let name = captured.get(1).unwrap().as_str();
            let mut suffixes = ["", "_bucket", "_sum", "_count"].iter();
            let is_of = |suffix| {
                name.strip_suffix(suffix)
                    .is_some_and(|name| served.contains(name))
            };
            let exists = suffixes.any(|suffix| is_of(*suffix));
            assert!(exists, "{file} names {name}");
            found += 1;
        }
        assert!(found >= 10, "{file}");
    }
}

#[test]
fn compose_mounts_what_exists_and_scrapes_where_metrics_are_served() {
    let compose = read("docker-compose.yml");
    let begins = "  prometheus:\n    profiles: [observability]";
    let (_, observability) = compose.split_once(begins).unwrap();
    let lines = observability.lines();
    let mounts = lines.filter_map(|line| line.trim().strip_prefix("- ./"));
    let mounts = mounts.map(|mount| mount.strip_suffix(":ro").unwrap());
    let mounted: Vec<_> = mounts.map(|mount| mount.split_once(':').unwrap()).collect();
    assert_eq!(mounted.len(), 3, "{mounted:?}");
    for (folder, _) in &mounted {
        assert!(root().join(folder).is_dir(), "{folder}");
    }
    // The file that Grafana opens first, and the folder that it provisions from.
    let at = |path: &str| {
        let below = |(folder, inside): &(&str, &str)| {
            Some(format!("{folder}{}", path.strip_prefix(inside)?))
        };
        mounted.iter().find_map(below).unwrap()
    };
    let home = at(observability.between("HOME_DASHBOARD_PATH: ", "\n"));
    assert_eq!(home, "deploy/grafana/dashboards/charge-once.json");
    assert!(root().join(&home).is_file());
    let provider = read("deploy/grafana/provisioning/dashboards/charge-once.yml");
    let (_, path) = provider.split_once("path: ").unwrap();
    assert_eq!(at(path.trim()), "deploy/grafana/dashboards");

    let source = read("deploy/grafana/provisioning/datasources/prometheus.yml");
    assert!(source.contains("url: http://prometheus:9090\n"));
    let address = "METRICS_ADDRESS: 0.0.0.0:9090\n";
    let (service, _) = compose.split_once(address).unwrap();
    let mut lines = service.rsplit("\n  ");
    assert!(lines.any(|line| line == "charge-once: &charge-once"));
    let scraped = read("deploy/prometheus/prometheus.yml");
    assert!(scraped.contains("- names: [charge-once]\n") && scraped.contains("port: 9090\n"));
}
