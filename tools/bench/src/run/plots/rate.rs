//! How the rate of charges grows with the number of connections.

use plotters::prelude::*;

use super::{
    Canvas, DARK_BLUE, DARK_GRAY, DARK_GREEN, DARK_ORANGE, PALE_GRAY, above, legend, text,
};
use crate::{
    measure::Series,
    run::{
        cases::{CASES, Work},
        servers::Server,
    },
};

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

pub(super) fn draw(canvas: &Canvas<'_>, measured: &[Series]) -> anyhow::Result<()> {
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

/// Connections and rate of each case of this kind.
fn points(measured: &[Series], server: Server, work: Work) -> Vec<(u32, u64)> {
    let cases = CASES.iter().zip(measured);
    let cases = cases.filter(|(one, _)| one.server == server && one.work == work);
    let points = cases.filter_map(|(one, series)| {
        let connections = u32::try_from(one.connections).ok()?;
        Some((connections, series.per_second()))
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
