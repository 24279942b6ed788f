//! The chart of the loads: documents a second over time, a curve for each engine.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Group;
use crate::error::{Error, Result};

const SIZE: (u32, u32) = (1000, 800);
/// Points of a curve, at most; longer runs are averaged.
const POINTS_MAX: usize = 250;
const COLORS: &[RGBColor] = &[
    RGBColor(16, 88, 148),
    RGBColor(196, 92, 22),
    RGBColor(60, 140, 60),
    RGBColor(140, 60, 140),
    RGBColor(110, 110, 110),
];
const TEXT: RGBColor = RGBColor(60, 60, 60);

fn drawing(error: impl Display) -> Error {
    Error::Engine("drawing", error.to_string())
}

/// Draws the load of a mode's main scenario; nothing if there is none.
pub fn loads(groups: &[Group<'_>], engines: &[&str], mode: &str) -> Result<Option<String>> {
    let load = groups
        .iter()
        .find(|group| group.mode == mode && group.scenario == "main" && group.phase == "load");
    let Some(load) = load else {
        return Ok(None);
    };
    let seconds: Vec<(&str, &[u64])> = engines
        .iter()
        .filter_map(|engine| {
            let record = load.engines.get(engine)?.first()?;
            Some((*engine, record.seconds.as_slice()))
        })
        .collect();
    let title = match mode {
        "limited" => "Load with little memory",
        _ => "Load with all in memory",
    };
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let (upper, lower) = root.split_vertically(SIZE.1 / 2);
        panel(&upper, title, "millions of documents", &seconds, |point| {
            point.documents
        })?;
        panel(&lower, "The same over time", "seconds", &seconds, |point| {
            point.seconds
        })?;
        root.present().map_err(drawing)?;
    }
    Ok(Some(text))
}

/// A part of a load.
struct Point {
    /// Millions of documents that were in at its middle.
    documents: f64,
    /// Seconds since the start at its middle.
    seconds: f64,
    /// Thousands of documents a second.
    speed: f64,
}

fn curve(seconds: &[u64]) -> Vec<Point> {
    // The last second is not a whole one.
    let whole = &seconds[..seconds.len().saturating_sub(1).max(seconds.len().min(1))];
    let group = whole.len().div_ceil(POINTS_MAX).max(1);
    let (mut documents, mut elapsed) = (0, 0.0);
    whole
        .chunks(group)
        .map(|part| {
            let (sum, length) = (part.iter().sum::<u64>(), part.len() as f64);
            documents += sum;
            elapsed += length;
            Point {
                documents: (documents as f64 - sum as f64 / 2.0) / 1e6,
                seconds: elapsed - length / 2.0,
                speed: sum as f64 / length / 1e3,
            }
        })
        .collect()
}

/// Draws the speed of each engine over `x` of each point.
fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    x_title: &str,
    engines: &[(&str, &[u64])],
    x: impl Fn(&Point) -> f64,
) -> Result<()> {
    let curves: Vec<(&str, Vec<(f64, f64)>)> = engines
        .iter()
        .map(|(engine, seconds)| {
            let points = curve(seconds);
            let points = points.iter().map(|point| (x(point), point.speed));
            (*engine, points.collect())
        })
        .collect();
    let points = || curves.iter().flat_map(|(_, points)| points);
    let x_max = points().map(|(x, _)| *x).fold(1e-6, f64::max);
    let y_max = points().map(|(_, y)| *y).fold(1e-6, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 19).into_font().color(&TEXT))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..x_max, 0.0..y_max)
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc(x_title)
        .y_desc("thousands of documents a second")
        .label_style(("sans-serif", 13).into_font().color(&TEXT))
        .draw()
        .map_err(drawing)?;
    for ((name, points), color) in curves.into_iter().zip(COLORS.iter().cycle()) {
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))
            .map_err(drawing)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(225, 225, 225))
        .label_font(("sans-serif", 13).into_font().color(&TEXT))
        .draw()
        .map_err(drawing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_leaves_the_last_second_out_and_averages_long_runs() {
        let points = curve(&[1000, 3000, 7]);
        assert_eq!(points.len(), 2);
        assert!((points[1].documents - 0.0025).abs() < 1e-9);
        assert!((points[1].seconds - 1.5).abs() < 1e-9 && (points[1].speed - 3.0).abs() < 1e-9);
        assert_eq!(curve(&[5]).len(), 1);
        assert_eq!(curve(&[]).len(), 0);
        let long: Vec<u64> = (0..10_001).map(|_| 2000).collect();
        let points = curve(&long);
        assert!(points.len() <= POINTS_MAX);
        assert!(points.iter().all(|point| (point.speed - 2.0).abs() < 1e-9));
    }
}
