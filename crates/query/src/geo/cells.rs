//! Cells of the sphere: what a `2dsphere` index holds and which of its keys a query has to read.
//!
//! S2 divides the sphere into six faces and each cell into four, along a curve that keeps neighbours
//! together (<https://s2geometry.io/devguide/s2cell_hierarchy>). A geometry is indexed by a few cells
//! that cover it. A query is covered too; it reads the cells inside of its own and those around them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use s2::cell::Cell;
use s2::cellid::CellID;
use s2::point::Point;

use super::edges::Bounds;
use super::near::Near;
use super::parse::Geometry;
use super::region::{GeoQuery, Region};
use super::shape::Shape;
use super::sphere::{TOLERANCE, angle, antipode, arc_distance};

/// Most cells that a geometry is indexed by, unless more are needed at the coarsest level.
const INDEX_CELLS_MAX: usize = 20;
/// Most cells that cover a query.
const QUERY_CELLS_MAX: usize = 20;
/// The finest level a query is covered with: cells of about a metre.
const QUERY_LEVEL_MAX: u64 = 23;
/// The finest level of all.
pub const LEVEL_MAX: u8 = 30;

/// The levels of cells that an index uses: `coarsestIndexedLevel` and `finestIndexedLevel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    pub coarsest: u8,
    pub finest: u8,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels {
            coarsest: 0,
            finest: 23,
        }
    }
}

/// Keys from the first to the second, both inside.
pub type KeySpan = (i64, i64);

/// Position of a cell relative to an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Apart,
    Inside,
    Mixed,
}

/// A cell with what tests need.
struct Tile {
    cell: Cell,
    corners: [Point; 4],
    center: Point,
    radius: f64,
}

impl Tile {
    fn new(id: CellID) -> Tile {
        let cell = Cell::from(id);
        let corners = cell.vertices();
        let center = cell.center();
        let radius = corners
            .iter()
            .map(|p| angle(p, &center))
            .fold(0.0, f64::max);
        Tile {
            cell,
            corners,
            center,
            radius,
        }
    }

    fn sides(&self) -> impl Iterator<Item = (&Point, &Point)> {
        (0..4).map(|i| (&self.corners[i], &self.corners[(i + 1) % 4]))
    }

    /// The angle from a point to the cell: zero inside.
    fn distance(&self, p: &Point) -> f64 {
        if self.cell.contains_point(p) {
            return 0.0;
        }
        self.sides()
            .map(|(a, b)| arc_distance(p, a, b))
            .fold(f64::INFINITY, f64::min)
    }

    fn touches(&self, p: &Point) -> bool {
        angle(p, &self.center) <= self.radius + TOLERANCE && self.distance(p) <= TOLERANCE
    }

    /// Compares the cell with the ring between two angles from a point.
    fn to_ring(&self, center: &Point, from: f64, to: f64) -> Relation {
        let nearest = self.distance(center);
        // A cell with the far side of the sphere in it reaches as far as there is.
        let farthest = std::f64::consts::PI - self.distance(&antipode(center));
        if nearest > to + TOLERANCE || farthest < from - TOLERANCE {
            Relation::Apart
        } else if nearest >= from && farthest <= to {
            Relation::Inside
        } else {
            Relation::Mixed
        }
    }

    fn to_shape(&self, shape: &Shape) -> Relation {
        let bounds = Bounds::around(&self.center, self.radius);
        let outline = shape.corners().any(|p| self.touches(p))
            || shape.points.iter().any(|p| self.touches(p))
            || self.meets_lines(shape, &bounds)
            || self
                .sides()
                .any(|(a, b)| shape.outline_meets(&bounds, a, b));
        if outline {
            return Relation::Mixed;
        }
        if shape
            .polygons
            .iter()
            .any(|area| area.contains(&self.center))
        {
            Relation::Inside
        } else {
            Relation::Apart
        }
    }

    /// Whether a corner of a line or border is in the cell.
    fn meets_lines(&self, shape: &Shape, bounds: &Bounds) -> bool {
        let rings = shape.polygons.iter().flat_map(|area| area.rings());
        let mut lines = shape.lines.iter().chain(rings.map(|ring| ring.edges()));
        lines.any(|line| line.any_near(bounds, |a, b| self.touches(a) || self.touches(b)))
    }
}

/// Covers an area with few cells of the given levels.
fn cover(
    relation: &dyn Fn(&Tile) -> Relation,
    (coarsest, finest): (u64, u64),
    most: usize,
) -> Vec<CellID> {
    let mut done = Vec::new();
    // Large cells are divided first.
    let mut open = BinaryHeap::new();
    let add = |id: CellID, open: &mut BinaryHeap<Reverse<(u64, u64)>>, done: &mut Vec<CellID>| {
        let level = id.level();
        match relation(&Tile::new(id)) {
            Relation::Apart => {}
            Relation::Inside if level >= coarsest => done.push(id),
            _ if level >= finest => done.push(id),
            _ => open.push(Reverse((level, id.0))),
        }
    };
    for face in 0..6 {
        add(CellID::from_face(face), &mut open, &mut done);
    }
    while let Some(Reverse((level, id))) = open.pop() {
        let id = CellID(id);
        let (open_before, done_before) = (open.len(), done.len());
        let mut inner_open = BinaryHeap::new();
        for child in id.children() {
            add(child, &mut inner_open, &mut done);
        }
        let new = inner_open.len() + done.len() - done_before;
        if level >= coarsest && open_before + done_before + new > most && new > 1 {
            done.truncate(done_before);
            done.push(id);
        } else {
            open.append(&mut inner_open);
        }
    }
    done
}

/// The key of a cell. Cells of one face follow each other as signed numbers too.
fn key(id: CellID) -> i64 {
    id.0.cast_signed()
}

/// The keys under which a geometry is indexed.
pub(crate) fn index_keys(geometry: &Geometry, levels: Levels) -> Vec<i64> {
    let Some(shape) = &geometry.shape else {
        return Vec::new();
    };
    let (coarsest, finest) = (levels.coarsest.into(), levels.finest.into());
    let mut keys: Vec<i64> = if shape.lines.is_empty() && shape.polygons.is_empty() {
        let cells = shape.points.iter().map(|p| CellID::from(p).parent(finest));
        cells.map(key).collect()
    } else {
        let cells = cover(
            &|tile| tile.to_shape(shape),
            (coarsest, finest),
            INDEX_CELLS_MAX,
        );
        cells.into_iter().map(key).collect()
    };
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The keys to read for a covering: cells inside, and cells around.
fn spans(cells: Vec<CellID>, levels: Levels) -> Vec<KeySpan> {
    let mut spans = Vec::new();
    for id in cells {
        let level = id.level();
        if level <= levels.finest.into() {
            spans.push((key(id.range_min()), key(id.range_max())));
        }
        let upper = level.min(u64::from(levels.finest) + 1);
        spans.extend((levels.coarsest.into()..upper).map(|level| {
            let around = key(id.parent(level));
            (around, around)
        }));
    }
    join(spans)
}

/// Sorts spans, and makes those that overlap one.
fn join(mut spans: Vec<KeySpan>) -> Vec<KeySpan> {
    spans.sort_unstable();
    let mut joined: Vec<KeySpan> = Vec::with_capacity(spans.len());
    for (low, high) in spans {
        match joined.last_mut() {
            Some(last) if low <= last.1 => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    joined
}

/// The keys of a `2dsphere` index that a query has to read. `None` if the index does not serve.
pub fn query_spans(query: &GeoQuery, levels: Levels) -> Option<Vec<KeySpan>> {
    let limits = (0, QUERY_LEVEL_MAX);
    let cells = match &query.region {
        Region::Shape(shape) => cover(&|tile| tile.to_shape(shape), limits, QUERY_CELLS_MAX),
        Region::Cap { center, radius, .. } => {
            let radius = *radius;
            cover(
                &|tile| tile.to_ring(center, 0.0, radius),
                limits,
                QUERY_CELLS_MAX,
            )
        }
        Region::Box(_) | Region::Circle { .. } | Region::Polygon(_) => return None,
    };
    Some(spans(cells, levels))
}

/// The keys of a `2dsphere` index for what is between two angles from the point of a query. Empty if
/// its distances are not those on the sphere.
pub fn ring_spans(near: &Near, from: f64, to: f64, levels: Levels) -> Vec<KeySpan> {
    let Some(center) = &near.center else {
        return Vec::new();
    };
    let cells = cover(
        &|tile| tile.to_ring(center, from, to),
        (0, QUERY_LEVEL_MAX),
        QUERY_CELLS_MAX,
    );
    spans(cells, levels)
}
