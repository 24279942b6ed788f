//! The grid of a `2d` index: a square, halved in both directions again and again. The key of a point
//! has a bit for each halving, of `x` and `y` in turn ("geohash", a Z-order curve).

use std::collections::BinaryHeap;

use super::flat::{FlatBox, FlatPoint};
use super::near::Near;
use super::region::{GeoQuery, Region};
use super::sphere::TOLERANCE;

/// Most squares that cover a query.
const SQUARES_MAX: usize = 40;
/// Keys from the first to the second, both inside.
pub type KeySpan = (u64, u64);

/// Most halvings of squares that cover a query.
const DEPTH_MAX: u32 = 26;

/// The square and how finely it is divided: `min`, `max` and `bits`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// The least number inside.
    pub min: f64,
    /// The greatest number inside.
    pub max: f64,
    /// Halvings of each direction, 1 to 32.
    pub bits: u32,
}

impl Default for Grid {
    fn default() -> Grid {
        Grid {
            min: -180.0,
            max: 180.0,
            bits: 26,
        }
    }
}

/// Position of a square relative to an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Apart,
    Inside,
    Mixed,
}

impl Grid {
    /// Whether a point has a key.
    pub fn contains(&self, p: &FlatPoint) -> bool {
        let range = self.min..=self.max;
        range.contains(&p.x) && range.contains(&p.y)
    }

    /// The column or row of a number, of 2^32.
    fn place(&self, x: f64) -> u32 {
        let part = (x - self.min) / (self.max - self.min);
        // Casts saturate, so the far border is in the last column.
        let place = (part * f64::from(2u32.pow(16)) * f64::from(2u32.pow(16))) as u32;
        place & (u32::MAX << (32 - self.bits.clamp(1, 32)))
    }

    /// The key of a point.
    pub(crate) fn key(&self, p: &FlatPoint) -> u64 {
        (spread(self.place(p.x)) << 1) | spread(self.place(p.y))
    }

    /// The square whose keys begin with the first `2 * depth` bits of `key`.
    fn square(&self, key: u64, depth: u32) -> FlatBox {
        let size = (self.max - self.min) / 2f64.powi(depth.cast_signed());
        let column = |bits: u64| {
            let at = u64::from(gather(bits)) >> (32 - depth.min(32));
            self.min + size * at as f64
        };
        let (x, y) = if depth == 0 {
            (self.min, self.min)
        } else {
            (column(key >> 1), column(key))
        };
        // A little larger: borders and roundings belong to both sides.
        let margin = (self.max - self.min) * 1e-9;
        FlatBox {
            low: FlatPoint {
                x: x - margin,
                y: y - margin,
            },
            high: FlatPoint {
                x: x + size + margin,
                y: y + size + margin,
            },
        }
    }

    fn cover(&self, relation: &dyn Fn(&FlatBox) -> Relation) -> Vec<KeySpan> {
        let mut done = Vec::new();
        let finest = self.bits.min(DEPTH_MAX);
        // Large squares are divided first.
        let mut open = BinaryHeap::from([(finest, 0u64)]);
        while let Some((left, key)) = open.pop() {
            let depth = finest - left;
            let full = open.len() + done.len() + 3 > SQUARES_MAX;
            match relation(&self.square(key, depth)) {
                Relation::Apart => {}
                Relation::Mixed if left > 0 && !full => {
                    let step = 62 - 2 * depth;
                    open.extend((0..4).map(|part| (left - 1, key | part << step)));
                }
                _ => {
                    let rest = u64::MAX.checked_shr(2 * depth).unwrap_or(0);
                    done.push((key, key | rest));
                }
            }
        }
        done.sort_unstable();
        let mut joined: Vec<KeySpan> = Vec::with_capacity(done.len());
        for (low, high) in done {
            match joined.last_mut() {
                Some(last) if last.1.checked_add(1) == Some(low) => last.1 = high,
                _ => joined.push((low, high)),
            }
        }
        joined
    }
}

/// Puts a zero before each bit.
fn spread(x: u32) -> u64 {
    let mut x = u64::from(x);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        x = (x | x << shift) & mask;
    }
    x
}

/// Takes every other bit, beginning with the lowest.
fn gather(x: u64) -> u32 {
    let mut x = x & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        x = (x | x >> shift) & mask;
    }
    x as u32
}

fn in_flat_ring(square: &FlatBox, center: &FlatPoint, from: f64, to: f64) -> Relation {
    let (nearest, farthest) = square.distances(center);
    // Along an axis a point counts as nearer or farther than its distance says, by roundings.
    let slack = 4.0 * f64::EPSILON * (center.x.abs() + center.y.abs() + farthest);
    if nearest > to + slack || farthest < from - slack {
        Relation::Apart
    } else if nearest >= from && farthest <= to {
        Relation::Inside
    } else {
        Relation::Mixed
    }
}

/// Position of a square of degrees relative to a cap. Parts of the square are approximated by boxes of degrees.
fn in_cap(square: &FlatBox, center: &FlatPoint, angle: f64) -> Relation {
    let radius = (angle + TOLERANCE).to_degrees() * (1.0 + 1e-9);
    let (south, north) = (center.y - radius, center.y + radius);
    let latitudes = square.low.y <= north && square.high.y >= south;
    // Near a pole, the cap has all longitudes.
    let reach = if north >= 90.0 || south <= -90.0 {
        180.0
    } else {
        let ratio = radius.to_radians().sin() / center.y.to_radians().cos();
        ratio.clamp(-1.0, 1.0).asin().to_degrees() + 1e-9
    };
    let (west, east) = (center.x - reach, center.x + reach);
    let longitudes = [-360.0, 0.0, 360.0]
        .iter()
        .any(|turn| square.low.x <= east + turn && square.high.x >= west + turn);
    if latitudes && longitudes {
        Relation::Mixed
    } else {
        Relation::Apart
    }
}

/// The keys of a `2d` index that a query has to read. `None` if the
/// index does not serve.
pub fn query_spans(query: &GeoQuery, grid: &Grid) -> Option<Vec<KeySpan>> {
    let relation: Box<dyn Fn(&FlatBox) -> Relation> = match &query.region {
        Region::Shape(_) => return None,
        Region::Box(area) => Box::new(move |square| {
            if !area.meets(square) {
                Relation::Apart
            } else if area.holds(square) {
                Relation::Inside
            } else {
                Relation::Mixed
            }
        }),
        Region::Circle { center, radius } => {
            Box::new(move |square| in_flat_ring(square, center, 0.0, *radius))
        }
        Region::Polygon(area) => Box::new(move |square| {
            if !area.bounds().meets(square) {
                Relation::Apart
            } else if area.sides_meet(square) {
                Relation::Mixed
            } else if area.contains(&square.low) {
                Relation::Inside
            } else {
                Relation::Apart
            }
        }),
        Region::Cap { at, radius, .. } => Box::new(move |square| in_cap(square, at, *radius)),
    };
    Some(grid.cover(&*relation))
}

impl Near {
    /// Distance from the point to the farthest corner of a grid, in the plane.
    pub fn distance_to_corner(&self, grid: &Grid) -> f64 {
        let reach = |x: f64| (x - grid.min).abs().max((grid.max - x).abs());
        reach(self.at.x).hypot(reach(self.at.y))
    }
}

/// The keys of a `2d` index for what is between two distances from the point of a query.
pub fn ring_spans(near: &Near, from: f64, to: f64, grid: &Grid) -> Vec<KeySpan> {
    let at = near.at;
    if near.is_spherical() {
        grid.cover(&|square| in_cap(square, &at, to))
    } else {
        grid.cover(&|square| in_flat_ring(square, &at, from, to))
    }
}
