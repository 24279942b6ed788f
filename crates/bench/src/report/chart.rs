//! The chart of a run: speed, latency and memory over the documents that are in.

use std::fmt::Write;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Row, Summary, thousands};
use crate::error::{Error, Result};

const WIDTH: u32 = 1000;
const SPEED_HEIGHT: u32 = 400;
const PANEL_HEIGHT: u32 = 230;

/// Points drawn for a curve, at most; a longer run is averaged.
const POINTS_MAX: usize = 1000;

const NOW: RGBColor = RGBColor(148, 190, 226);
const FIRST: RGBColor = RGBColor(16, 88, 148);
const SECOND: RGBColor = RGBColor(196, 92, 22);
const TEXT: RGBColor = RGBColor(60, 60, 60);

/// A curve: its name, colour, width, and points (millions of documents, value).
struct Curve {
    name: &'static str,
    color: RGBColor,
    width: u32,
    points: Vec<(f64, f64)>,
}

/// Draws the chart.
pub fn svg(summary: &Summary, rows: &[Row]) -> Result<String> {
    let rows = thin(rows);
    let memory = memory_curves(&rows);
    let panels = 1 + u32::from(!memory.is_empty());
    let size = (WIDTH, SPEED_HEIGHT + panels * PANEL_HEIGHT);
    let mut text = String::new();
    let backend = SVGBackend::with_string(&mut text, size);
    draw(backend.into_drawing_area(), summary, &rows, &memory)?;
    Ok(text)
}

fn draw(
    root: DrawingArea<SVGBackend<'_>, Shift>,
    summary: &Summary,
    rows: &[Row],
    memory: &[Curve],
) -> Result<()> {
    root.fill(&WHITE).map_err(drawing)?;
    let (speed, rest) = root.split_vertically(SPEED_HEIGHT);
    let (latency, memory_area) = rest.split_vertically(PANEL_HEIGHT);

    let documents = thousands(summary.documents as f64);
    let title = match summary.exit_speed {
        Some(speed) => format!("{documents} documents, exit speed {}/s", thousands(speed)),
        None => format!("{documents} documents"),
    };
    // All panels share their horizontal axis. A run too short for one interval still gets it.
    let last = rows.last().map_or(0, |row| row.documents);
    let x_max = (last as f64 / 1e6).max(1e-6);
    panel(&speed, x_max, &title, "documents/s", &speed_curves(rows))?;
    let slow = curve("99 of 100 faster", SECOND, 2, rows, |row| Some(row.p99_ms));
    let median = curve("half faster", FIRST, 2, rows, |row| Some(row.p50_ms));
    panel(
        &latency,
        x_max,
        "Time for a batch",
        "milliseconds",
        &[slow, median],
    )?;
    if !memory.is_empty() {
        panel(&memory_area, x_max, "Server's memory", "MiB", memory)?;
    }
    root.present().map_err(drawing)
}

/// The chart and the report's tables as one page that needs nothing else.
pub fn html(summary: &Summary, svg: &str) -> String {
    let mut tables = String::new();
    for (title, pairs) in [
        ("Result", &summary.figures()),
        ("Settings", &summary.settings),
        ("Versions and machine", &summary.facts()),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(tables, "<h2>{title}</h2>\n<table>");
        for (name, value) in pairs {
            let (name, value) = (escape(name), escape(value));
            let _ = writeln!(tables, "<tr><th>{name}</th><td>{value}</td></tr>");
        }
        tables.push_str("</table>\n");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Indexed insertion</title>\n<style>\n\
         body {{ font: 16px/1.5 system-ui, sans-serif; color: #333; max-width: 1000px; \
         margin: 2rem auto; padding: 0 1rem; }}\n\
         svg {{ max-width: 100%; height: auto; }}\n\
         table {{ border-collapse: collapse; }}\n\
         th, td {{ text-align: left; font-weight: normal; padding: .2rem 1.5rem .2rem 0; \
         border-bottom: 1px solid #ddd; }}\n\
         th {{ color: #666; }}\n</style>\n</head>\n<body>\n<h1>Indexed insertion</h1>\n\
         {svg}\n{tables}</body>\n</html>\n"
    )
}

fn speed_curves(rows: &[Row]) -> Vec<Curve> {
    let now = curve("now", NOW, 1, rows, |row| Some(row.documents_per_s));
    let average = curve("on average", SECOND, 1, rows, |row| {
        Some(row.documents as f64 / row.elapsed_s.max(1e-9))
    });
    let window = (rows.len() / 40).max(1);
    let points = moving_average(&now.points, window);
    let smooth = Curve {
        name: "now, smoothed",
        color: FIRST,
        width: 2,
        points,
    };
    vec![now, average, smooth]
}

fn memory_curves(rows: &[Row]) -> Vec<Curve> {
    let mut curves = vec![
        curve("resident", SECOND, 2, rows, |row| row.figures.resident_mib),
        curve("cache", FIRST, 2, rows, |row| row.figures.cache_mib),
    ];
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

fn curve(
    name: &'static str,
    color: RGBColor,
    width: u32,
    rows: &[Row],
    value: impl Fn(&Row) -> Option<f64>,
) -> Curve {
    let points = rows
        .iter()
        .filter_map(|row| Some((row.documents as f64 / 1e6, value(row)?)));
    Curve {
        name,
        color,
        width,
        points: points.collect(),
    }
}

/// The mean of each point and its neighbours, `window` in all; fewer at the ends.
fn moving_average(points: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    let half = window / 2;
    let mean = |index: usize| {
        let from = index.saturating_sub(half);
        let near = points.get(from..(index + half + 1).min(points.len()))?;
        Some(near.iter().map(|(_, y)| y).sum::<f64>() / near.len() as f64)
    };
    points
        .iter()
        .enumerate()
        .filter_map(|(index, (x, _))| Some((*x, mean(index)?)))
        .collect()
}

/// Joins neighbouring rows until there are few enough to draw. Speeds are averaged, latencies and
/// memory keep their worst, so that nothing bad is smoothed away.
fn thin(rows: &[Row]) -> Vec<Row> {
    let group = rows.len().div_ceil(POINTS_MAX).max(1);
    let worst = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    let join = |rows: &[Row]| {
        let mut joined = *rows.last()?;
        joined.documents_per_s =
            rows.iter().map(|row| row.documents_per_s).sum::<f64>() / rows.len() as f64;
        for row in rows {
            joined.p50_ms = joined.p50_ms.max(row.p50_ms);
            joined.p99_ms = joined.p99_ms.max(row.p99_ms);
            joined.figures.resident_mib =
                worst(joined.figures.resident_mib, row.figures.resident_mib);
            joined.figures.cache_mib = worst(joined.figures.cache_mib, row.figures.cache_mib);
        }
        Some(joined)
    };
    rows.chunks(group).filter_map(join).collect()
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    x_max: f64,
    title: &str,
    unit: &str,
    curves: &[Curve],
) -> Result<()> {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let y_max = all().map(|(_, y)| *y).fold(0.0, f64::max).max(1e-6) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 19).into_font().color(&TEXT))
        .margin(12)
        .margin_right(24)
        .x_label_area_size(38)
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..x_max, 0.0..y_max)
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .axis_style(RGBColor(150, 150, 150))
        .label_style(("sans-serif", 14).into_font().color(&TEXT))
        .x_desc("million documents")
        .y_desc(unit)
        .x_label_formatter(&|x| trim_number(*x))
        .y_label_formatter(&|y| {
            if *y >= 1000.0 {
                thousands(*y)
            } else {
                trim_number(*y)
            }
        })
        .draw()
        .map_err(drawing)?;
    for curve in curves {
        let style = curve.color.stroke_width(curve.width);
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), style))
            .map_err(drawing)?;
    }
    legend(area, curves)
}

/// Names the curves beside the title, right-aligned, where they cover nothing.
fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>, curves: &[Curve]) -> Result<()> {
    const LETTER_WIDTH: i32 = 7;
    const LINE_WIDTH: i32 = 18;
    const Y: i32 = 24;
    let mut x = WIDTH as i32 - 24;
    for curve in curves.iter().rev() {
        x -= curve.name.len() as i32 * LETTER_WIDTH;
        let font = ("sans-serif", 14).into_font().color(&TEXT);
        area.draw(&Text::new(curve.name, (x, Y - 8), font))
            .map_err(drawing)?;
        x -= LINE_WIDTH + 6;
        let style = curve.color.stroke_width(curve.width);
        area.draw(&PathElement::new([(x, Y), (x + LINE_WIDTH, Y)], style))
            .map_err(drawing)?;
        x -= 16;
    }
    Ok(())
}

/// A number with as many decimals as it needs, at most four.
fn trim_number(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn drawing(error: impl std::fmt::Display) -> Error {
    Error::Io(
        "drawing the chart".to_owned(),
        std::io::Error::other(error.to_string()),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rows(count: u64) -> Vec<Row> {
        let row = |n: u64| Row {
            elapsed_s: n as f64,
            documents: n * 1000,
            documents_per_s: 1000.0,
            p50_ms: 1.0,
            p99_ms: if n == 1501 { 99.0 } else { 2.0 },
            ..Row::default()
        };
        (1..=count).map(row).collect()
    }

    #[test]
    fn long_runs_are_thinned_without_losing_their_worst() {
        assert_eq!(thin(&[]), []);
        assert_eq!(thin(&rows(10)).len(), 10);
        let thinned = thin(&rows(2500));
        assert!(thinned.len() <= POINTS_MAX);
        assert_eq!(thinned.last().unwrap().documents, 2_500_000);
        assert!(thinned.iter().any(|row| row.p99_ms == 99.0));
        assert!(thinned.iter().all(|row| row.documents_per_s == 1000.0));
    }

    #[test]
    fn averages_reach_to_both_sides() {
        let points: Vec<(f64, f64)> = (0..5).map(|n| (f64::from(n), f64::from(n * n))).collect();
        let expected = [0.5, 5.0 / 3.0, 14.0 / 3.0, 29.0 / 3.0, 12.5];
        let got = moving_average(&points, 3);
        assert_eq!(got.len(), 5);
        for ((_, y), expected) in got.iter().zip(expected) {
            assert!((y - expected).abs() < 1e-9, "{got:?}");
        }
        assert_eq!(moving_average(&points, 1), points);
    }

    #[test]
    fn numbers_and_texts_are_written_for_pages() {
        for (number, text) in [(0.5, "0.5"), (10.0, "10"), (0.0, "0"), (1.0e-5, "0")] {
            assert_eq!(trim_number(number), text);
        }
        assert_eq!(escape("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
