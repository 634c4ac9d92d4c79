//! What requests cost: CPU time of the service and of PostgreSQL.

use plotters::prelude::*;

use super::{Canvas, DARK_BLUE, DARK_ORANGE, PALE_GRAY, above, legend, text};
use crate::{
    measure::Series,
    run::{
        cases::{Case, Work, at, case},
        report::find,
        servers::Server,
    },
};

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

pub(super) fn draw(canvas: &Canvas<'_>, measured: &[Series]) -> anyhow::Result<()> {
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
        .y_label_formatter(&|row| name(&bars, row))
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

/// What stands beside a row.
fn name(bars: &[Bar], row: &SegmentValue<u32>) -> String {
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
    use crate::run::cases::CASES;

    #[test]
    fn every_bar_is_measured_and_the_first_one_is_the_highest_row() {
        let measured = CASES.map(|_| Series::default());
        let bars = bars(&measured);
        assert_eq!(bars.len(), BARS.len());
        let highest = bars.last().map(|bar| bar.name.as_str());
        assert_eq!(highest, Some("GET /livez (16)"));
    }
}
