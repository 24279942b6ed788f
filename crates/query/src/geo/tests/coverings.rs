//! Coverings: whatever a query matches has a key among those that it reads.

use frond_bson::{Doc, DocBuf, Value, doc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::geo::cells::{self, Levels};
use crate::geo::grid::{self, Grid};
use crate::geo::{GeoQuery, Near, flat_keys, sphere_keys};
use crate::matcher::{Expr, Filter, Leaf, Op};
use crate::paths::Path;

fn query(filter: &Filter) -> &GeoQuery {
    match filter.predicates() {
        Expr::Leaf(Leaf {
            op: Op::Geo(query), ..
        }) => query,
        other => panic!("{other:?}"),
    }
}

/// A place: anywhere, near a pole, the antimeridian, or a face's corner, or on round numbers.
fn place(rng: &mut StdRng) -> (f64, f64) {
    let near = |rng: &mut StdRng, x: f64| x + rng.random_range(-2.0..2.0);
    match rng.random_range(0..6) {
        0 => (
            rng.random_range(-180.0..180.0),
            rng.random_range(-88.0..88.0),
        ),
        1 => (rng.random_range(-180.0..180.0), near(rng, 88.0)),
        2 => (near(rng, 178.0), near(rng, 0.0)),
        3 => (near(rng, 45.0), near(rng, 35.26)),
        4 => (
            f64::from(rng.random_range(-18..18)) * 10.0,
            f64::from(rng.random_range(-8..8)) * 10.0,
        ),
        _ => (near(rng, 0.0), near(rng, 0.0)),
    }
}

fn pair((lng, lat): (f64, f64)) -> frond_bson::ArrayBuf {
    [lng.clamp(-180.0, 180.0), lat.clamp(-90.0, 90.0)]
        .into_iter()
        .collect()
}

/// A ring around a place.
fn ring(rng: &mut StdRng, (lng, lat): (f64, f64), size: f64) -> frond_bson::ArrayBuf {
    let corners = rng.random_range(3..9);
    let corner = |i: i32| {
        let turn = f64::from(i % corners) / f64::from(corners) * std::f64::consts::TAU;
        pair((lng + size * turn.cos(), lat + size * turn.sin()))
    };
    let all: Vec<frond_bson::ArrayBuf> = (0..=corners).map(corner).collect();
    all.iter().collect()
}

fn stored(rng: &mut StdRng) -> DocBuf {
    let at = place(rng);
    let size = 10f64.powf(rng.random_range(-4.0..1.0));
    match rng.random_range(0..4) {
        0 => {
            let other = pair((at.0 + size, at.1 + size / 2.0));
            let points: frond_bson::ArrayBuf = [pair(at), other].iter().collect();
            doc! {"type": "LineString", "coordinates": &points}
        }
        1 => {
            let rings: frond_bson::ArrayBuf = [ring(rng, at, size)].iter().collect();
            doc! {"type": "Polygon", "coordinates": &rings}
        }
        _ => doc! {"type": "Point", "coordinates": &pair(at)},
    }
}

/// Whether any key is in any span.
fn has<K: PartialOrd>(spans: &[(K, K)], keys: &[K]) -> bool {
    let inside = |key: &K| spans.iter().any(|(low, high)| key >= low && key <= high);
    keys.iter().any(inside)
}

#[test]
fn spherical_queries_read_what_they_match() {
    let mut rng = StdRng::seed_from_u64(11);
    let levels = [
        Levels::default(),
        Levels {
            coarsest: 3,
            finest: 12,
        },
        Levels {
            coarsest: 0,
            finest: 30,
        },
    ];
    let (mut matched, mut spared) = (0, 0);
    for round in 0..24 {
        let at = place(&mut rng);
        let size = 10f64.powf(rng.random_range(-3.0..1.3));
        let area = match round % 3 {
            0 => {
                let rings: frond_bson::ArrayBuf = [ring(&mut rng, at, size)].iter().collect();
                doc! {"$geometry": doc! {"type": "Polygon", "coordinates": &rings}}
            }
            1 => {
                let mut circle = frond_bson::ArrayBuf::new();
                circle.push(&pair(at));
                circle.push(size.to_radians());
                doc! {"$centerSphere": &circle}
            }
            _ => doc! {"$geometry": &stored(&mut rng)},
        };
        for operator in ["$geoWithin", "$geoIntersects"] {
            let filter = doc! {"g": doc! {operator: &area}};
            let Ok(filter) = Filter::parse(&filter) else {
                continue;
            };
            let levels = levels[round % levels.len()];
            let spans = cells::query_spans(query(&filter), levels).unwrap();
            for other in 0..40 {
                let shape = if other % 2 == 0 {
                    stored(&mut rng)
                } else {
                    let far = (
                        at.0 + rng.random_range(-size..size),
                        at.1 + rng.random_range(-size..size),
                    );
                    doc! {"type": "Point", "coordinates": &pair(far)}
                };
                let Ok(keys) = sphere_keys(&Value::Document(&shape), levels) else {
                    continue;
                };
                assert!(!keys.is_empty() && keys.len() <= 40, "{} keys", keys.len());
                let matches = filter.matches(&doc! {"g": &shape});
                let found = has(&spans, &keys);
                assert!(!matches || found, "{filter:?} {shape:?}");
                matched += u32::from(matches);
                spared += u32::from(!found);
            }
        }
    }
    assert!(matched > 100 && spared > 100, "{matched} {spared}");
}

#[test]
fn rings_around_a_point_read_what_is_between() {
    let mut rng = StdRng::seed_from_u64(12);
    let levels = Levels::default();
    for _ in 0..25 {
        let at = pair(place(&mut rng));
        let near = Near::new(&Value::Array(&at), true, 0.0, f64::MAX).unwrap();
        let from = rng.random_range(0.0..1.0f64).powi(4);
        let to = from + rng.random_range(0.0..1.0f64).powi(3);
        let spans = cells::ring_spans(&near, from, to, levels);
        for _ in 0..100 {
            let shape = stored(&mut rng);
            let Ok(keys) = sphere_keys(&Value::Document(&shape), levels) else {
                continue;
            };
            let doc = doc! {"g": &shape};
            let distance = near.nearest(&doc, &Path::new("g")).unwrap().distance;
            if (from..=to).contains(&distance) {
                assert!(has(&spans, &keys), "{from} {distance} {to}");
            }
        }
    }
}

#[test]
fn flat_queries_read_what_they_match() {
    let mut rng = StdRng::seed_from_u64(13);
    let grids = [
        Grid::default(),
        Grid {
            min: -500.0,
            max: 500.0,
            bits: 10,
        },
        Grid {
            min: -1000.0,
            max: 1000.0,
            bits: 32,
        },
        Grid {
            min: -180.0,
            max: 180.0,
            bits: 1,
        },
    ];
    let number = |rng: &mut StdRng| match rng.random_range(0..3) {
        0 => f64::from(rng.random_range(-18..=18)) * 10.0,
        _ => rng.random_range(-180.0..180.0),
    };
    let two = |rng: &mut StdRng| -> frond_bson::ArrayBuf {
        [number(rng), number(rng)].into_iter().collect()
    };
    let (mut matched, mut spared) = (0, 0);
    for round in 0..100 {
        let grid = grids[round % grids.len()];
        let list =
            |items: &[frond_bson::ArrayBuf]| -> frond_bson::ArrayBuf { items.iter().collect() };
        let (name, shape) = match round % 5 {
            0 | 1 => ("$box", list(&[two(&mut rng), two(&mut rng)])),
            2 => (
                "$polygon",
                list(&[two(&mut rng), two(&mut rng), two(&mut rng), two(&mut rng)]),
            ),
            3 => {
                let mut circle = list(&[two(&mut rng)]);
                circle.push(rng.random_range(0.0..60.0));
                ("$center", circle)
            }
            _ => {
                let mut circle = list(&[pair(place(&mut rng))]);
                circle.push(rng.random_range(0.0..1.0f64).powi(3));
                ("$centerSphere", circle)
            }
        };
        let filter = doc! {"g": doc! {"$geoWithin": doc! {name: &shape}}};
        let filter = Filter::parse(&filter).unwrap();
        let spans = grid::query_spans(query(&filter), &grid).unwrap();
        assert!(spans.len() <= 50);
        let near = Near::new(&Value::Array(&two(&mut rng)), false, 0.0, f64::MAX).unwrap();
        let (from, to) = (rng.random_range(0.0..50.0), rng.random_range(50.0..120.0));
        let ring = grid::ring_spans(&near, from, to, &grid);
        for _ in 0..100 {
            let point = two(&mut rng);
            let keys = flat_keys(&Value::Array(&point), &grid).unwrap();
            let doc = doc! {"g": &point};
            let (matches, found) = (filter.matches(&doc), has(&spans, &keys));
            assert!(!matches || found, "{filter:?} {point:?}");
            matched += u32::from(matches);
            spared += u32::from(!found);
            let distance = near.nearest(&doc, &Path::new("g")).unwrap().distance;
            assert!(!(from..=to).contains(&distance) || has(&ring, &keys));
        }
    }
    assert!(matched > 100 && spared > 100, "{matched} {spared}");
}

#[test]
fn spherical_distances_in_a_grid() {
    let mut rng = StdRng::seed_from_u64(14);
    let grid = Grid::default();
    for _ in 0..100 {
        let at = pair(place(&mut rng));
        let near = Near::new(&Value::Array(&at), true, 0.0, f64::MAX).unwrap();
        let to = rng.random_range(0.0..1.0f64).powi(3) * 2.0;
        let spans = grid::ring_spans(&near, 0.0, to, &grid);
        for _ in 0..60 {
            let point = pair(place(&mut rng));
            let keys = flat_keys(&Value::Array(&point), &grid).unwrap();
            let doc = doc! {"g": &point};
            let doc: &Doc = &doc;
            let distance = near.nearest(doc, &Path::new("g")).unwrap().distance;
            assert!(distance > to || has(&spans, &keys), "{at:?} {to} {point:?}");
        }
    }
}
