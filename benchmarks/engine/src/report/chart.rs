//! The chart of the loads: documents a second over time, a curve for each engine.

use std::fmt::Display;

use plotters::prelude::*;

use super::Group;
use crate::error::{Error, Result};

const SIZE: (u32, u32) = (1000, 460);
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
    let curves: Vec<(&str, Vec<(f64, f64)>)> = engines
        .iter()
        .filter_map(|engine| {
            let record = load.engines.get(engine)?.first()?;
            Some((*engine, curve(&record.seconds)))
        })
        .collect();
    draw(&curves, mode).map(Some)
}

/// Thousands of documents a second over the millions that are in.
fn curve(seconds: &[u64]) -> Vec<(f64, f64)> {
    // The last second is not a whole one.
    let whole = &seconds[..seconds.len().saturating_sub(1).max(seconds.len().min(1))];
    let group = whole.len().div_ceil(POINTS_MAX).max(1);
    let mut documents = 0;
    whole
        .chunks(group)
        .map(|seconds| {
            let sum: u64 = seconds.iter().sum();
            documents += sum;
            let middle = documents as f64 - sum as f64 / 2.0;
            (middle / 1e6, sum as f64 / seconds.len() as f64 / 1e3)
        })
        .collect()
}

fn draw(curves: &[(&str, Vec<(f64, f64)>)], mode: &str) -> Result<String> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let x_max = points().map(|(x, _)| *x).fold(1e-6, f64::max);
    let y_max = points().map(|(_, y)| *y).fold(1e-6, f64::max) * 1.1;
    let title = match mode {
        "limited" => "Load with little memory",
        _ => "Load with all in memory",
    };
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let mut chart = ChartBuilder::on(&root)
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
            .x_desc("millions of documents")
            .y_desc("thousands of documents a second")
            .label_style(("sans-serif", 13).into_font().color(&TEXT))
            .draw()
            .map_err(drawing)?;
        for ((name, points), color) in curves.iter().zip(COLORS.iter().cycle()) {
            chart
                .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))
                .map_err(drawing)?
                .label(*name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(225, 225, 225))
            .label_font(("sans-serif", 13).into_font().color(&TEXT))
            .draw()
            .map_err(drawing)?;
        root.present().map_err(drawing)?;
    }
    Ok(text)
}
