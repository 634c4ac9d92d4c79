//! The plots of `make bench`, as SVG.

mod cpu;
mod rate;

use std::path::Path;

use anyhow::Context;
use plotters::{
    coord::{CoordTranslate, Shift},
    prelude::*,
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
        ("rate.svg", svg(|canvas| rate::draw(canvas, measured))?),
        ("cpu.svg", svg(|canvas| cpu::draw(canvas, measured))?),
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

/// Shows what the colors are.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::cases::CASES;

    #[test]
    fn plots_name_their_axes_and_what_they_show() -> anyhow::Result<()> {
        let measured = CASES.map(|_| Series::of(vec![1_000; 500], 50_000, 100_000));
        let rate = svg(|canvas| rate::draw(canvas, &measured))?;
        for shown in ["per second", "connections", "256", "BATCH=off", "pgbench"] {
            assert!(rate.contains(shown), "{shown}");
        }
        let cpu = svg(|canvas| cpu::draw(canvas, &measured))?;
        for shown in ["microseconds", "PostgreSQL", "service", "GET /livez (16)"] {
            assert!(cpu.contains(shown), "{shown}");
        }
        Ok(())
    }

    #[test]
    fn a_plot_of_nothing_is_still_a_plot() -> anyhow::Result<()> {
        let measured = CASES.map(|_| Series::default());
        svg(|canvas| rate::draw(canvas, &measured))?;
        svg(|canvas| cpu::draw(canvas, &measured))?;
        Ok(())
    }
}
