//! Panels of curves, one below the other.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::format::thousands;
use frond_client::{Error, Result};

const WIDTH: u32 = 1000;

/// Colours of curves, distinguishable for the colour-blind too (after Okabe and Ito).
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
pub const SECOND: RGBColor = RGBColor(196, 92, 22);
const TEXT: RGBColor = RGBColor(60, 60, 60);

/// The colour of the n-th server.
pub fn color(index: usize) -> RGBColor {
    COLORS.get(index % COLORS.len()).copied().unwrap_or(FIRST)
}

/// A paler shade of a colour, for raw values behind a smoothed curve.
pub fn pale(color: RGBColor) -> RGBColor {
    let mix = |part: u8| (u16::from(part) * 9 / 20 + 255 * 11 / 20) as u8;
    RGBColor(mix(color.0), mix(color.1), mix(color.2))
}

#[derive(Clone)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    pub color: RGBColor,
    pub width: u32,
    /// Drawn dashed, over the axis on the right: a null server, which may be far above the others.
    pub dashed: bool,
    /// (place on the horizontal axis, value)
    pub points: Vec<(f64, f64)>,
}

/// Curves over one axis.
#[derive(Clone)]
pub struct Panel {
    pub height: u32,
    pub title: String,
    pub unit: &'static str,
    /// The curves, drawn in this order.
    pub curves: Vec<Curve>,
}

impl Panel {
    /// The main panel of a chart.
    pub fn tall(title: impl Into<String>, unit: &'static str, curves: Vec<Curve>) -> Panel {
        Panel {
            height: 400,
            title: title.into(),
            unit,
            curves,
        }
    }

    pub fn low(title: impl Into<String>, unit: &'static str, curves: Vec<Curve>) -> Panel {
        Panel {
            height: 230,
            ..Panel::tall(title, unit, curves)
        }
    }
}

/// The scale of the horizontal axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    #[default]
    Linear,
    /// Logarithmic to the base 2: positions are exponents, so 3 is 8.
    Log2,
}

impl Axis {
    /// The label at a position; none between two whole powers.
    fn label(self, x: f64) -> String {
        match self {
            Axis::Linear => trim_number(x),
            Axis::Log2 if (x - x.round()).abs() < 1e-6 => trim_number(x.round().exp2()),
            Axis::Log2 => String::new(),
        }
    }
}

/// Draws the panels, which share their horizontal axis: from 0 to `x_max`, in `x_unit`.
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
    // An axis of their own keeps dashed curves from flattening the others.
    let right = curves.iter().any(|curve| curve.dashed) && curves.iter().any(|c| !c.dashed);
    let y_max = |dashed: bool| {
        let curves = curves.iter().filter(|c| !right || c.dashed == dashed);
        let points = curves.flat_map(|curve| &curve.points);
        points.map(|(_, y)| *y).fold(0.0, f64::max).max(1e-6) * 1.1
    };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_top(HEAD + (rows.len() as i32 - 1) * LEGEND_ROW)
        .margin_right(if right { 8 } else { RIGHT })
        .x_label_area_size(38)
        .y_label_area_size(84)
        .right_y_label_area_size(if right { RIGHT_AXIS } else { 0 })
        .build_cartesian_2d(0.0..x_max, 0.0..y_max(false))
        .map_err(drawing)?
        .set_secondary_coord(0.0..x_max, 0.0..y_max(true));
    let label = |y: &f64| {
        if *y >= 1000.0 {
            thousands(*y)
        } else {
            trim_number(*y)
        }
    };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .axis_style(RGBColor(150, 150, 150))
        .label_style(("sans-serif", 14).into_font().color(&TEXT))
        .x_desc(x_unit)
        .y_desc(panel.unit)
        .x_label_formatter(&|x| axis.label(*x))
        .y_label_formatter(&label)
        .draw()
        .map_err(drawing)?;
    if right {
        chart
            .configure_secondary_axes()
            .axis_style(RGBColor(150, 150, 150))
            .label_style(("sans-serif", 14).into_font().color(&TEXT))
            .y_desc("dashed: null server")
            .y_label_formatter(&label)
            .draw()
            .map_err(drawing)?;
    }
    for curve in curves {
        let style = curve.color.stroke_width(curve.width);
        let points = curve.points.iter().copied();
        let drawn = match (curve.dashed, right) {
            (true, true) => chart
                .draw_secondary_series(DashedLineSeries::new(points, 7, 5, style))
                .map(|_| ()),
            (true, false) => chart
                .draw_series(DashedLineSeries::new(points, 7, 5, style))
                .map(|_| ()),
            (false, _) => chart
                .draw_series(LineSeries::new(points, style))
                .map(|_| ()),
        };
        drawn.map_err(drawing)?;
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
/// Width of the labels of the axis on the right.
const RIGHT_AXIS: i32 = 84;
/// Width of a letter of the title, and of the legend.
const LETTERS: (i32, i32) = (10, 7);
/// Length of a line in the legend, and the space around it.
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
            let mut dashes = if curve.dashed {
                vec![(x, x + 5), (x + 7, x + 11), (x + 13, x + LINE)]
            } else {
                vec![(x, x + LINE)]
            };
            for (from, to) in dashes.drain(..) {
                area.draw(&PathElement::new([(from, y), (to, y)], style))
                    .map_err(drawing)?;
            }
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
            dashed: false,
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
    fn a_null_server_is_dashed_over_an_axis_of_its_own() {
        let curve = |dashed: bool, y: f64| Curve {
            name: format!("at {y}"),
            color: FIRST,
            width: 2,
            dashed,
            points: vec![(0.0, y), (1.0, y)],
        };
        let draw = |curves: Vec<Curve>| {
            let panel = Panel::low("t", "u", curves);
            svg(&[panel], 1.0, "x", Axis::Linear).unwrap()
        };
        let both = draw(vec![curve(false, 10.0), curve(true, 1e6)]);
        assert!(both.contains("dashed: null server"), "{both}");
        // Each scale ends a little above its own curves.
        assert!(both.contains(">\n10\n<") && both.contains(">\n1,000,000\n<"));
        for curves in [vec![curve(false, 10.0)], vec![curve(true, 10.0)]] {
            assert!(!draw(curves).contains("dashed: null server"));
        }
    }

    #[test]
    fn an_axis_of_powers_of_two_names_whole_powers() {
        for (axis, x, text) in [
            (Axis::Linear, 2.5, "2.5"),
            (Axis::Log2, 0.0, "1"),
            (Axis::Log2, 3.0, "8"),
            (Axis::Log2, 2.5, ""),
            (Axis::Log2, 10.0, "1024"),
        ] {
            assert_eq!(axis.label(x), text);
        }
    }
}
