//! The plots of `make bench`, as SVG.

use std::path::Path;

use anyhow::Context;
use plotters::{
    coord::{CoordTranslate, Shift},
    prelude::*,
};

use super::{
    cases::{CASES, Case, Work, at, case},
    report::find,
    servers::Server,
};
use crate::measure::Series;

// Colors that people with any color vision can tell apart.
const DARK_BLUE: RGBColor = RGBColor(0, 114, 178);
const DARK_ORANGE: RGBColor = RGBColor(213, 94, 0);
const DARK_GREEN: RGBColor = RGBColor(0, 158, 115);
const DARK_GRAY: RGBColor = RGBColor(110, 110, 110);
const PALE_GRAY: RGBColor = RGBColor(225, 225, 225);

/// The size of both, in pixels.
const SIZE: (u32, u32) = (860, 520);

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes both plots beside the report. The series are in the order of the cases.
pub(super) fn write(report: &Path, measured: &[Series]) -> anyhow::Result<()> {
    let folder = report.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{} can't be made", folder.display()))?;
    for (name, svg) in [
        ("rate.svg", svg(|canvas| draw_rate(canvas, measured))?),
        ("cpu.svg", svg(|canvas| draw_cpu(canvas, measured))?),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, svg)
            .with_context(|| format!("{} can't be written", file.display()))?;
    }
    Ok(())
}

/// A drawing on white, which is readable on a dark page too.
fn svg(draw: impl FnOnce(&Canvas<'_>) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let canvas = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        canvas.fill(&WHITE)?;
        draw(&canvas)?;
        canvas.present()?;
    }
    Ok(text)
}

fn text(size: u32) -> (&'static str, u32) {
    ("sans-serif", size)
}

fn legend<'a, X: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, X>,
    position: SeriesLabelPosition,
) -> anyhow::Result<()> {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE)
        .border_style(PALE_GRAY)
        .label_font(text(16))
        .draw()?;
    Ok(())
}

/// The end of an axis that shows this value.
fn above(value: u64) -> u64 {
    (value + value / 10).max(1)
}

const LINES: [(&str, Server, Work, RGBColor); 4] = [
    ("POST /charges", Server::Default, Work::Create, DARK_BLUE),
    (
        "POST /charges, BATCH=off",
        Server::WithoutBatches,
        Work::Create,
        DARK_ORANGE,
    ),
    (
        "pgbench, the same rows",
        Server::Default,
        Work::Classic,
        DARK_GREEN,
    ),
    (
        "pgbench, two bare tables",
        Server::Default,
        Work::Bare,
        DARK_GRAY,
    ),
];

/// Connections with a mark on the axis.
const CONNECTIONS: [u32; 5] = [1, 8, 16, 64, 256];

/// How the rate of charges grows with the number of connections.
fn draw_rate(canvas: &Canvas<'_>, measured: &[Series]) -> anyhow::Result<()> {
    let lines =
        LINES.map(|(name, server, work, color)| (name, points(measured, server, work), color));
    let highest = lines.iter().flat_map(|(_, points, _)| points);
    let highest = highest.map(|(_, rate)| *rate).max().unwrap_or(0);
    let connections = (1_u32..300).log_scale().base(2.0);
    let mut chart = ChartBuilder::on(canvas)
        .caption("Charges in a second", text(20))
        .margin(15)
        .x_label_area_size(50)
        .y_label_area_size(80)
        .build_cartesian_2d(
            connections.with_key_points(CONNECTIONS.to_vec()),
            0..above(highest),
        )?;
    chart
        .configure_mesh()
        .bold_line_style(PALE_GRAY)
        .light_line_style(TRANSPARENT)
        .x_desc("connections (logarithmic)")
        .y_desc("requests or transactions per second")
        .label_style(text(16))
        .draw()?;
    for (name, points, color) in lines {
        let style = color.stroke_width(2);
        let line = LineSeries::new(points, style).point_size(4);
        chart
            .draw_series(line)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}

fn points(measured: &[Series], server: Server, work: Work) -> Vec<(u32, u64)> {
    let cases = CASES.iter().zip(measured);
    let cases = cases.filter(|(one, _)| one.server == server && one.work == work);
    let points = cases.filter_map(|(one, series)| {
        let connections = u32::try_from(one.connections).ok()?;
        Some((connections, series.per_second()))
    });
    points.collect()
}

/// What has a bar, from the top down. A charge through a processor would need a longer axis.
const BARS: [Case; 15] = [
    case(Work::Alive, 16),
    case(Work::ReplayOne, 64),
    case(Work::ReplayMany, 64),
    at(Server::WithoutCache, Work::ReplayMany, 64),
    case(Work::InFlight, 64),
    case(Work::Mixed, 16),
    case(Work::Refused, 16),
    case(Work::Declined, 16),
    case(Work::Order, 16),
    case(Work::Refund, 16),
    case(Work::Create, 16),
    case(Work::Create, 64),
    at(Server::WithoutBatches, Work::Create, 64),
    case(Work::Classic, 64),
    case(Work::Bare, 64),
];

#[derive(Debug, PartialEq, Eq)]
struct Bar {
    name: String,
    service_us: u64,
    postgres_us: u64,
}

/// From where to where a color of a bar goes.
type Ends = fn(&Bar) -> (u64, u64);

const PARTS: [(&str, RGBColor, Ends); 2] = [
    ("service", DARK_BLUE, |bar| (0, bar.service_us)),
    ("PostgreSQL", DARK_ORANGE, |bar| {
        (bar.service_us, bar.cpu_us())
    }),
];

impl Bar {
    fn cpu_us(&self) -> u64 {
        self.service_us + self.postgres_us
    }
}

/// What requests cost: CPU time of the service and of PostgreSQL.
fn draw_cpu(canvas: &Canvas<'_>, measured: &[Series]) -> anyhow::Result<()> {
    let bars = bars(measured);
    let longest = bars.iter().map(Bar::cpu_us).max().unwrap_or(0);
    let last = u32::try_from(bars.len()).unwrap_or(0).saturating_sub(1);
    let mut chart = ChartBuilder::on(canvas)
        .caption("CPU time of a request, of cases (connections)", text(20))
        .margin(15)
        .x_label_area_size(50)
        .y_label_area_size(370)
        .build_cartesian_2d(0..above(longest), (0..last).into_segmented())?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .bold_line_style(PALE_GRAY)
        .light_line_style(TRANSPARENT)
        .x_desc("microseconds per request")
        .y_labels(bars.len())
        .y_label_formatter(&|row| bar_name(&bars, row))
        .label_style(text(16))
        .draw()?;
    for (label, color, ends) in PARTS {
        let rows = (0..).zip(&bars);
        chart
            .draw_series(rows.map(|(row, bar)| rectangle(row, ends(bar), color)))?
            .label(label)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled()));
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

fn bar_name(bars: &[Bar], row: &SegmentValue<u32>) -> String {
    let (SegmentValue::Exact(row) | SegmentValue::CenterOf(row)) = row else {
        return String::new();
    };
    let bar = usize::try_from(*row).ok().and_then(|row| bars.get(row));
    bar.map_or_else(String::new, |bar| bar.name.clone())
}

fn rectangle(
    row: u32,
    (from, to): (u64, u64),
    color: RGBColor,
) -> Rectangle<(u64, SegmentValue<u32>)> {
    let corners = [
        (from, SegmentValue::Exact(row)),
        (to, SegmentValue::Exact(row + 1)),
    ];
    let mut rectangle = Rectangle::new(corners, color.filled());
    rectangle.set_margin(4, 4, 0, 0);
    rectangle
}

/// In the order of an axis that goes up.
fn bars(measured: &[Series]) -> Vec<Bar> {
    let bars = BARS.iter().rev().filter_map(|one| {
        let series = find(measured, *one)?;
        Some(Bar {
            name: format!("{} ({})", one.name(), one.connections),
            service_us: series.service_us(),
            postgres_us: series.postgres_us(),
        })
    });
    bars.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_name_their_axes_and_what_they_show() -> anyhow::Result<()> {
        let measured = CASES.map(|_| Series::of(vec![1_000; 500], 50_000, 100_000));
        let rate = svg(|canvas| draw_rate(canvas, &measured))?;
        for shown in ["per second", "connections", "256", "BATCH=off", "pgbench"] {
            assert!(rate.contains(shown), "{shown}");
        }
        let cpu = svg(|canvas| draw_cpu(canvas, &measured))?;
        for shown in ["microseconds", "PostgreSQL", "service", "GET /livez (16)"] {
            assert!(cpu.contains(shown), "{shown}");
        }
        Ok(())
    }

    #[test]
    fn a_plot_of_nothing_is_still_a_plot() -> anyhow::Result<()> {
        let measured = CASES.map(|_| Series::default());
        svg(|canvas| draw_rate(canvas, &measured))?;
        svg(|canvas| draw_cpu(canvas, &measured))?;
        Ok(())
    }

    #[test]
    fn a_line_goes_to_more_and_more_connections() {
        let measured = CASES.map(|_| Series::default());
        for (name, server, work, _) in LINES {
            let points = points(&measured, server, work);
            let (connections, _): (Vec<u32>, Vec<u64>) = points.into_iter().unzip();
            assert!(connections.len() >= 2 && connections.is_sorted(), "{name}");
            let mut connections = connections.iter();
            assert!(connections.all(|one| CONNECTIONS.contains(one)), "{name}");
        }
    }

    #[test]
    fn every_bar_is_measured_and_the_first_one_is_the_highest_row() {
        let measured = CASES.map(|_| Series::default());
        let bars = bars(&measured);
        assert_eq!(bars.len(), BARS.len());
        let highest = bars.last().map(|bar| bar.name.as_str());
        assert_eq!(highest, Some("GET /livez (16)"));
    }
}
