//! Panels of curves, one below the other.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::thousands;
use crate::error::{Error, Result};

/// Width of a chart.
const WIDTH: u32 = 1000;

/// Colours of curves, told apart also by those who see few colours (after Okabe and Ito).
const COLORS: [RGBColor; 6] = [
    FIRST,
    SECOND,
    RGBColor(110, 110, 110),
    RGBColor(0, 134, 100),
    RGBColor(170, 90, 140),
    RGBColor(190, 150, 0),
];

/// The first of two strong colours.
pub const FIRST: RGBColor = RGBColor(16, 88, 148);
/// The second one.
pub const SECOND: RGBColor = RGBColor(196, 92, 22);
const TEXT: RGBColor = RGBColor(60, 60, 60);

/// The colour of the n-th server.
#[must_use]
pub fn color(index: usize) -> RGBColor {
    COLORS.get(index % COLORS.len()).copied().unwrap_or(FIRST)
}

/// A colour made pale, for what varies much.
#[must_use]
pub fn pale(color: RGBColor) -> RGBColor {
    let mix = |part: u8| (u16::from(part) * 9 / 20 + 255 * 11 / 20) as u8;
    RGBColor(mix(color.0), mix(color.1), mix(color.2))
}

/// A curve.
#[derive(Clone)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its colour.
    pub color: RGBColor,
    /// Its width.
    pub width: u32,
    /// (place on the horizontal axis, value)
    pub points: Vec<(f64, f64)>,
}

/// Curves over one axis.
#[derive(Clone)]
pub struct Panel {
    /// Height in pixels.
    pub height: u32,
    /// What stands above it.
    pub title: String,
    /// What its vertical axis counts.
    pub unit: &'static str,
    /// The curves, drawn in this order.
    pub curves: Vec<Curve>,
}

/// What places on the horizontal axis mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    /// Themselves.
    #[default]
    Linear,
    /// 2 to the power of the place: 0 is 1, 3 is 8.
    PowersOfTwo,
}

impl Axis {
    /// What stands at a place; nothing between two whole powers.
    fn label(self, x: f64) -> String {
        match self {
            Axis::Linear => trim_number(x),
            Axis::PowersOfTwo if (x - x.round()).abs() < 1e-6 => trim_number(x.round().exp2()),
            Axis::PowersOfTwo => String::new(),
        }
    }
}

/// Draws the panels, which share their horizontal axis: from 0 to `x_max`, of what `x_unit` names.
pub fn svg(panels: &[Panel], x_max: f64, x_unit: &str, axis: Axis) -> Result<String> {
    let height = panels.iter().map(|panel| panel.height).sum();
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    let mut rest = root.clone();
    for panel in panels {
        let (area, below) = rest.split_vertically(panel.height);
        draw(&area, (x_max, x_unit, axis), panel)?;
        rest = below;
    }
    root.present().map_err(drawing)?;
    drop((root, rest));
    Ok(text)
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    (x_max, x_unit, axis): (f64, &str, Axis),
    panel: &Panel,
) -> Result<()> {
    let curves = &panel.curves;
    let rows = legend_rows(&panel.title, curves);
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let y_max = all().map(|(_, y)| *y).fold(0.0, f64::max).max(1e-6) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_top(HEAD + (rows.len() as i32 - 1) * LEGEND_ROW)
        .margin_right(RIGHT)
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
        .x_desc(x_unit)
        .y_desc(panel.unit)
        .x_label_formatter(&|x| axis.label(*x))
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
    let font = ("sans-serif", 19).into_font().color(&TEXT);
    area.draw(&Text::new(panel.title.as_str(), (LEFT, 12), font))
        .map_err(drawing)?;
    legend(area, &rows)
}

/// Room for the title and the first row of the legend.
const HEAD: i32 = 46;
/// Height of each further row of the legend.
const LEGEND_ROW: i32 = 20;
/// Where the vertical axis is.
const LEFT: i32 = 96;
/// Left free at the right.
const RIGHT: i32 = 24;
/// Width of a letter of the title, and of the legend.
const LETTERS: (i32, i32) = (10, 7);
/// A curve's piece of line in the legend, and what is free around it.
const LINE: i32 = 18;
const SPACE: i32 = 22;

fn legend_width(curve: &Curve) -> i32 {
    curve.name.chars().count() as i32 * LETTERS.1 + LINE + SPACE
}

/// The curves that have names, in rows: beside the title if all fit there, else below it. The first
/// row is the one beside the title.
fn legend_rows<'c>(title: &str, curves: &'c [Curve]) -> Vec<Vec<&'c Curve>> {
    let named: Vec<&Curve> = curves
        .iter()
        .filter(|curve| !curve.name.is_empty())
        .collect();
    let room = WIDTH as i32 - LEFT - RIGHT;
    let all: i32 = named.iter().map(|curve| legend_width(curve)).sum();
    if title.chars().count() as i32 * LETTERS.0 + all <= room {
        return vec![named];
    }
    let (mut rows, mut used) = (vec![Vec::new(), Vec::new()], 0);
    for curve in named {
        let width = legend_width(curve);
        if used + width > room {
            rows.push(Vec::new());
            used = 0;
        }
        used += width;
        if let Some(row) = rows.last_mut() {
            row.push(curve);
        }
    }
    rows
}

/// Names the curves, right-aligned, where they cover nothing.
fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>, rows: &[Vec<&Curve>]) -> Result<()> {
    for (row, y) in rows.iter().zip((24..).step_by(LEGEND_ROW as usize)) {
        let mut x = WIDTH as i32 - RIGHT;
        for curve in row.iter().rev() {
            x -= curve.name.chars().count() as i32 * LETTERS.1;
            let font = ("sans-serif", 14).into_font().color(&TEXT);
            area.draw(&Text::new(curve.name.as_str(), (x, y - 8), font))
                .map_err(drawing)?;
            x -= LINE + 6;
            let style = curve.color.stroke_width(curve.width);
            area.draw(&PathElement::new([(x, y), (x + LINE, y)], style))
                .map_err(drawing)?;
            x -= SPACE - 6;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_few_decimals() {
        for (number, text) in [(0.5, "0.5"), (10.0, "10"), (0.0, "0"), (1.0e-5, "0")] {
            assert_eq!(trim_number(number), text);
        }
    }

    #[test]
    fn a_legend_that_does_not_fit_beside_the_title_goes_below_it() {
        let curve = |letters: usize| Curve {
            name: "x".repeat(letters),
            color: FIRST,
            width: 1,
            points: Vec::new(),
        };
        for (title, letters, rows) in [
            (10, &[10, 0, 10][..], &[2][..]),
            (10, &[55, 55, 0], &[0, 2]),
            (60, &[20, 20], &[0, 2]),
            (10, &[60, 60, 60, 60], &[0, 1, 1, 1, 1]),
            (10, &[], &[0]),
        ] {
            let curves: Vec<Curve> = letters.iter().map(|n| curve(*n)).collect();
            let got = legend_rows(&"t".repeat(title), &curves);
            let counts: Vec<usize> = got.iter().map(Vec::len).collect();
            assert_eq!(counts, rows, "{title} {letters:?}");
        }
    }

    #[test]
    fn an_axis_of_powers_of_two_names_whole_powers() {
        for (axis, x, text) in [
            (Axis::Linear, 2.5, "2.5"),
            (Axis::PowersOfTwo, 0.0, "1"),
            (Axis::PowersOfTwo, 3.0, "8"),
            (Axis::PowersOfTwo, 2.5, ""),
            (Axis::PowersOfTwo, 10.0, "1024"),
        ] {
            assert_eq!(axis.label(x), text);
        }
    }
}
