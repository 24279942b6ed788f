//! Geospatial indexes: they find what a scan finds, and `$near` gives documents in the order of their
//! distance.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_query::geo::Near;
use frond_query::paths::Path;
use frond_store::{AggregateRequest, Durability, FindRequest, Namespace, OpContext, Verbosity};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

fn pair(x: f64, y: f64) -> ArrayBuf {
    [x, y].into_iter().collect()
}

fn ids(docs: &[DocBuf]) -> Vec<i32> {
    docs.iter().map(|doc| doc.get_i32("_id").unwrap()).collect()
}

fn sorted(mut ids: Vec<i32>) -> Vec<i32> {
    ids.sort_unstable();
    ids
}

/// A collection without an index, and the same one with each of several.
struct Worlds {
    fixture: Fixture,
    plain: Namespace,
    indexed: Vec<Namespace>,
}

impl Worlds {
    fn new(docs: &[DocBuf], indexes: &[DocBuf]) -> Worlds {
        let fixture = Fixture::new();
        let plain = ns("geo.plain");
        fixture.insert(&plain, docs);
        let indexed = indexes.iter().enumerate().map(|(i, spec)| {
            let here = ns(&format!("geo.indexed{i}"));
            let (before, after) = docs.split_at(docs.len() / 2);
            fixture.insert(&here, before);
            fixture.store.create_indexes(&here, &[spec]).unwrap();
            fixture.insert(&here, after);
            here
        });
        Worlds {
            indexed: indexed.collect(),
            plain,
            fixture,
        }
    }

    /// The stages that explain names for a filter.
    fn stages(&self, at: &Namespace, filter: &Doc) -> String {
        let request = FindRequest {
            filter: Some(filter),
            ..FindRequest::default()
        };
        let plan = self.fixture.store.explain_find(
            at,
            &request,
            Verbosity::ExecutionStats,
            &OpContext::new(),
        );
        format!("{:?}", plan.unwrap())
    }

    /// Compares every index with the scan. Returns how many documents match.
    fn compare(&self, filter: &DocBuf) -> usize {
        let expected = sorted(ids(&self.fixture.find_all(&self.plain, filter.clone())));
        for at in &self.indexed {
            let found = sorted(ids(&self.fixture.find_all(at, filter.clone())));
            assert_eq!(found, expected, "{at:?} {filter:?}");
        }
        expected.len()
    }
}

/// Points all over the world and many near one city; lines and areas too.
fn places(rng: &mut StdRng, count: i32) -> Vec<DocBuf> {
    (0..count)
        .map(|id| {
            let (x, y) = if id % 2 == 0 {
                (
                    rng.random_range(-180.0..180.0),
                    rng.random_range(-89.0..89.0),
                )
            } else {
                (
                    13.4 + rng.random_range(-0.5..0.5),
                    52.5 + rng.random_range(-0.5..0.5),
                )
            };
            let mut doc = doc! {"_id": id, "kind": id % 3};
            match id % 12 {
                3 => {
                    let ends: ArrayBuf = [pair(x, y), pair(x / 1.01, y / 1.01)].iter().collect();
                    doc.push("g", &doc! {"type": "LineString", "coordinates": &ends});
                }
                5 => {
                    let corners = [pair(x, y), pair(x / 1.02, y), pair(x, y / 1.02), pair(x, y)];
                    let ring: ArrayBuf = corners.iter().collect();
                    let rings: ArrayBuf = [ring].iter().collect();
                    doc.push("g", &doc! {"type": "Polygon", "coordinates": &rings});
                }
                6 => doc.push("g", &pair(x, y)),
                7 => {}
                _ => doc.push("g", &doc! {"type": "Point", "coordinates": &pair(x, y)}),
            }
            doc
        })
        .collect()
}

#[test]
fn spherical_indexes_find_what_a_scan_finds() {
    let mut rng = StdRng::seed_from_u64(1);
    let docs = places(&mut rng, 300);
    let worlds = Worlds::new(
        &docs,
        &[
            doc! {"key": {"g": "2dsphere"}},
            doc! {"key": {"kind": 1, "g": "2dsphere"}},
            doc! {"key": {"g": "2dsphere", "kind": -1}, "finestIndexedLevel": 10},
        ],
    );
    let mut matched = 0;
    for round in 0..16 {
        let (x, y) = if round % 2 == 0 {
            (13.4, 52.5)
        } else {
            (
                rng.random_range(-170.0..170.0),
                rng.random_range(-70.0..70.0),
            )
        };
        let size = 10f64.powf(rng.random_range(-1.5..1.3));
        let corners = [
            pair(x - size, y - size / 2.0),
            pair(x + size, y),
            pair(x, y + size / 2.0),
        ];
        let ring: ArrayBuf = corners.iter().chain(corners.first()).collect();
        let rings: ArrayBuf = [ring].iter().collect();
        let polygon = doc! {"type": "Polygon", "coordinates": &rings};
        let mut circle = ArrayBuf::new();
        circle.push(&pair(x, y));
        circle.push(size.to_radians());
        for condition in [
            doc! {"$geoWithin": doc! {"$geometry": &polygon}},
            doc! {"$geoIntersects": doc! {"$geometry": &polygon}},
            doc! {"$geoWithin": doc! {"$centerSphere": &circle}},
        ] {
            matched += worlds.compare(&doc! {"g": &condition});
            matched += worlds.compare(&doc! {"g": &condition, "kind": 1});
        }
    }
    assert!(matched > 100, "{matched}");
    let filter = doc! {"g": {"$geoWithin": {"$centerSphere": [[13.4, 52.5], 0.001]}}, "kind": 1};
    for at in &worlds.indexed {
        let plan = worlds.stages(at, &filter);
        assert!(
            plan.contains("IXSCAN") && !plan.contains("COLLSCAN"),
            "{plan}"
        );
    }
    // An area in the plane is not an area on the sphere.
    let flat = doc! {"g": {"$geoWithin": {"$box": [[0, 0], [20, 60]]}}};
    assert!(
        worlds
            .stages(&worlds.indexed[0], &flat)
            .contains("COLLSCAN")
    );
    worlds.compare(&flat);
}

#[test]
fn flat_indexes_find_what_a_scan_finds() {
    let mut rng = StdRng::seed_from_u64(2);
    let docs: Vec<DocBuf> = (0..500)
        .map(|id| {
            let mut number = || f64::from(rng.random_range(-1800..1800)) / 10.0;
            let mut doc = doc! {"_id": id, "kind": id % 3};
            match id % 7 {
                0 => doc.push("g", &doc! {"x": number(), "y": number()}),
                1 => {
                    let several: ArrayBuf = [pair(number(), number()), pair(number(), number())]
                        .iter()
                        .collect();
                    doc.push("g", &several);
                }
                2 => {}
                _ => doc.push("g", &pair(number(), number())),
            }
            doc
        })
        .collect();
    let worlds = Worlds::new(
        &docs,
        &[
            doc! {"key": {"g": "2d"}},
            doc! {"key": {"g": "2d", "kind": 1}, "bits": 5},
            doc! {"key": {"g": "2d"}, "min": -500, "max": 500, "bits": 32},
        ],
    );
    let mut matched = 0;
    for _ in 0..16 {
        let mut number = || f64::from(rng.random_range(-180..180));
        let corners: ArrayBuf = [(); 3].map(|()| pair(number(), number())).iter().collect();
        let two: ArrayBuf = corners.values().take(2).collect();
        let mut circle: ArrayBuf = corners.values().take(1).collect();
        circle.push(number().abs() / 3.0);
        for area in [
            doc! {"$box": &two},
            doc! {"$polygon": &corners},
            doc! {"$center": &circle},
        ] {
            let condition = doc! {"$geoWithin": &area};
            matched += worlds.compare(&doc! {"g": &condition});
            matched += worlds.compare(&doc! {"g": &condition, "kind": 2});
        }
    }
    assert!(matched > 100, "{matched}");
    let filter = doc! {"g": {"$geoWithin": {"$box": [[0, 0], [20, 60]]}}};
    for at in &worlds.indexed {
        assert!(worlds.stages(at, &filter).contains("IXSCAN"));
    }
}

/// The ids of the nearest documents, nearest first, computed from all documents.
fn brute_force(docs: &[DocBuf], near: &Near, keeps: impl Fn(&Doc) -> bool) -> Vec<(f64, i32)> {
    let path = Path::new("g");
    let mut all: Vec<(f64, i32)> = docs
        .iter()
        .filter(|doc| keeps(doc))
        .filter_map(|doc| {
            let nearest = near.nearest(doc, &path)?;
            (nearest.is_wanted).then(|| (nearest.distance, doc.get_i32("_id").unwrap()))
        })
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all
}

/// The ids; ids of equal distances are in ascending order.
fn in_order(docs: &[DocBuf], near: &Near) -> Vec<(f64, i32)> {
    let path = Path::new("g");
    let mut all: Vec<(f64, i32)> = docs
        .iter()
        .map(|doc| {
            (
                near.nearest(doc, &path).unwrap().distance,
                doc.get_i32("_id").unwrap(),
            )
        })
        .collect();
    assert!(all.is_sorted_by(|a, b| a.0 <= b.0));
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all
}

#[test]
fn near_returns_documents_in_the_order_of_distance() {
    let mut rng = StdRng::seed_from_u64(3);
    let docs = places(&mut rng, 300);
    let worlds = Worlds::new(
        &docs,
        &[
            doc! {"key": {"g": "2dsphere"}},
            doc! {"key": {"kind": 1, "g": "2dsphere"}},
        ],
    );
    for round in 0..8 {
        let (x, y) = match round % 3 {
            0 => (13.4, 52.5),
            1 => (179.9, rng.random_range(-80.0..80.0)),
            _ => (rng.random_range(-180.0..180.0), 89.9),
        };
        let (min, max) = match round % 4 {
            0 => (0.0, f64::MAX),
            1 => (0.0, 50_000.0),
            2 => (20_000.0, 3_000_000.0),
            _ => (8_000_000.0, 30_000_000.0),
        };
        let point = doc! {"type": "Point", "coordinates": &pair(x, y)};
        let near = Near::new(&Value::Document(&point), false, min, max).unwrap();
        let mut argument = doc! {"$geometry": &point, "$minDistance": min};
        if max < f64::MAX {
            argument.push("$maxDistance", max);
        }
        let condition = doc! {"$near": &argument};
        for at in &worlds.indexed {
            let found = worlds.fixture.find_all(at, doc! {"g": &condition});
            assert_eq!(
                in_order(&found, &near),
                brute_force(&docs, &near, |_| true),
                "{at:?}"
            );
            let found = worlds
                .fixture
                .find_all(at, doc! {"g": &condition, "kind": 2});
            let expected = brute_force(&docs, &near, |doc| doc.get_i32("kind") == Some(2));
            assert_eq!(in_order(&found, &near), expected, "{at:?}");
            // The first ones only.
            let filter = doc! {"g": &condition};
            let request = FindRequest {
                filter: Some(&filter),
                limit: Some(7),
                ..FindRequest::default()
            };
            let few = in_order(&worlds.fixture.find(at, &request), &near);
            let all = brute_force(&docs, &near, |_| true);
            assert_eq!(few, all[..7.min(all.len())]);
        }
    }
}

#[test]
fn flat_distances_and_legacy_pairs_on_the_sphere() {
    let mut rng = StdRng::seed_from_u64(4);
    let docs: Vec<DocBuf> = (0..400)
        .map(|id| {
            let (x, y) = (
                rng.random_range(-180.0..180.0),
                rng.random_range(-90.0..90.0),
            );
            doc! {"_id": id, "g": &pair(x, y)}
        })
        .collect();
    let worlds = Worlds::new(
        &docs,
        &[doc! {"key": {"g": "2d"}}, doc! {"key": {"g": "2dsphere"}}],
    );
    for round in 0..10 {
        let at = pair(
            rng.random_range(-180.0..180.0),
            rng.random_range(-90.0..90.0),
        );
        for (operator, on_sphere, max) in [
            ("$near", false, 60.0),
            ("$near", false, f64::MAX),
            ("$nearSphere", true, 0.5),
            ("$nearSphere", true, f64::MAX),
        ] {
            let near = Near::new(&Value::Array(&at), on_sphere, 0.0, max).unwrap();
            let condition = doc! {operator: &at, "$maxDistance": max};
            for world in &worlds.indexed {
                if !on_sphere && *world == worlds.indexed[1] {
                    continue;
                }
                let found = worlds.fixture.find_all(world, doc! {"g": &condition});
                let expected = brute_force(&docs, &near, |_| true);
                assert_eq!(in_order(&found, &near), expected, "{round} {operator}");
            }
        }
    }
    let names = |filter: DocBuf| {
        let stages = worlds.indexed.iter().map(|at| worlds.stages(at, &filter));
        stages.collect::<Vec<_>>()
    };
    let spherical = names(doc! {"g": {"$nearSphere": [1, 2]}});
    let stage = &names(doc! {"kind": 1, "g": {"$nearSphere": [1, 2]}})[1];
    let fetch = stage.split("FETCH").nth(1).unwrap();
    let filter = fetch.split("inputStage").next().unwrap();
    assert!(
        filter.contains("kind") && !filter.contains("$nearSphere"),
        "{stage}"
    );
    assert!(spherical[0].contains("GEO_NEAR_2D\"") && spherical[1].contains("GEO_NEAR_2DSPHERE"));
}

/// Issue 13: points whose distance is the radius, along an axis, are inside, with and without an index.
#[test]
fn points_on_the_boundary_along_an_axis_are_inside() {
    let mut docs = Vec::new();
    let mut add = |x: f64, y: f64| docs.push(doc! {"_id": docs.len() as i32, "g": &pair(x, y)});
    for (x, y) in [(5.0, 52.0), (-70.0, 0.3), (0.1, 0.2)] {
        for step in [0.0001, 0.1, 0.7] {
            for sign in [1.0, -1.0] {
                add(x + sign * step, y);
                add(x, y + sign * step);
            }
        }
    }
    let worlds = Worlds::new(
        &docs,
        &[
            doc! {"key": {"g": "2d"}},
            doc! {"key": {"g": "2d"}, "bits": 32},
        ],
    );
    for (x, y) in [(5.0, 52.0), (-70.0, 0.3), (0.1, 0.2)] {
        for radius in [0.0, 0.0001, 0.1, 0.7, 1.0, 100.0] {
            let at = pair(x, y);
            // MongoDB's own rule: the lesser number and the radius against the greater.
            let compare = |doc: &DocBuf| {
                let numbers = doc.get_array("g").unwrap();
                let (a, b) = (numbers.get_f64("0").unwrap(), numbers.get_f64("1").unwrap());
                let along = |p: f64, q: f64| {
                    if q > p {
                        q - (p + radius)
                    } else {
                        p - (q + radius)
                    }
                };
                if a == x {
                    along(b, y)
                } else if b == y {
                    along(a, x)
                } else {
                    ((a - x) * (a - x) + (b - y) * (b - y)).sqrt() - radius
                }
            };
            let inside = docs.iter().filter(|doc| compare(doc) <= 0.0).count();
            let outside = docs.iter().filter(|doc| compare(doc) >= 0.0).count();
            if (x, radius) == (5.0, 0.0001) {
                assert_eq!((inside, outside), (4, docs.len()));
            }
            let mut circle: ArrayBuf = [at.as_value()].into_iter().collect();
            circle.push(radius);
            let within = doc! {"g": {"$geoWithin": {"$center": &circle}}};
            assert_eq!(worlds.compare(&within), inside, "{circle:?}");
            for at_most in [true, false] {
                let mut condition = doc! {"$near": &at};
                condition.push(
                    if at_most {
                        "$maxDistance"
                    } else {
                        "$minDistance"
                    },
                    radius,
                );
                let expected = if at_most { inside } else { outside };
                for world in &worlds.indexed {
                    let found = worlds.fixture.find_all(world, doc! {"g": &condition});
                    assert_eq!(found.len(), expected, "{condition:?} {world:?}");
                }
            }
        }
    }
}

/// Issue 13: 180 and -180 are one meridian, and near a pole all are close together, whatever the grid of the
/// index says.
#[test]
fn legacy_pairs_on_both_sides_of_the_date_line_are_near() {
    let mut rng = StdRng::seed_from_u64(9);
    let docs: Vec<DocBuf> = (0..500)
        .map(|id| {
            let x = match id % 5 {
                0 => [180.0, -180.0, 179.999_999, -179.999_999][id as usize / 5 % 4],
                1 => rng.random_range(179.0..180.0),
                2 => rng.random_range(-180.0..-179.0),
                _ => rng.random_range(-180.0..180.0),
            };
            let y = match id % 7 {
                0 => [90.0, -90.0, 89.999, -89.999][id as usize / 7 % 4],
                1 => rng.random_range(-1.0..1.0),
                _ => rng.random_range(-90.0..90.0),
            };
            doc! {"_id": id, "g": &pair(x, y)}
        })
        .collect();
    let worlds = Worlds::new(
        &docs,
        &[
            doc! {"key": {"g": "2d"}},
            doc! {"key": {"g": "2d"}, "min": -1000, "max": 1000},
            doc! {"key": {"g": "2d"}, "bits": 5},
            doc! {"key": {"g": "2dsphere"}},
        ],
    );
    for (x, y) in [
        (180.0, 0.0),
        (-180.0, 0.0),
        (179.5, 0.3),
        (-179.9, -0.5),
        (-180.0, 60.0),
        (179.0, 88.0),
        (10.0, 90.0),
        (-170.0, -90.0),
        (0.0, 0.0),
    ] {
        let at = pair(x, y);
        for (min, max) in [
            (0.0, 0.000_1),
            (0.0, 0.02),
            (0.01, 0.5),
            (0.0, f64::MAX),
            (1.0, 3.0),
            (3.0, f64::MAX),
        ] {
            let near = Near::new(&Value::Array(&at), true, min, max).unwrap();
            let condition = doc! {"$nearSphere": &at, "$minDistance": min, "$maxDistance": max};
            for world in &worlds.indexed {
                let found = worlds.fixture.find_all(world, doc! {"g": &condition});
                let expected = brute_force(&docs, &near, |_| true);
                assert_eq!(in_order(&found, &near), expected, "{condition:?} {world:?}");
            }
            let cap: ArrayBuf = [Value::Array(&at), Value::Double(max.min(3.2))]
                .iter()
                .collect();
            worlds.compare(&doc! {"g": {"$geoWithin": {"$centerSphere": &cap}}});
        }
    }
}

#[test]
fn many_documents_at_one_point_are_returned_in_parts() {
    let docs: Vec<DocBuf> = (0..3000)
        .map(|id| {
            let away = f64::from(id / 10) * 1e-6;
            doc! {"_id": id, "g": &pair(10.0 + away, 20.0)}
        })
        .collect();
    let worlds = Worlds::new(&docs, &[doc! {"key": {"g": "2dsphere"}}]);
    let at = pair(10.0, 20.0);
    let near = Near::new(&Value::Array(&at), true, 0.0, f64::MAX).unwrap();
    let found = worlds
        .fixture
        .find_all(&worlds.indexed[0], doc! {"g": {"$nearSphere": [10, 20]}});
    assert_eq!(in_order(&found, &near), brute_force(&docs, &near, |_| true));
}

#[test]
fn near_needs_an_index() {
    let worlds = Worlds::new(
        &[doc! {"_id": 1, "g": [1, 2]}],
        &[doc! {"key": {"g": "2dsphere"}}, doc! {"key": {"g": "2d"}}],
    );
    let geojson = doc! {"type": "Point", "coordinates": [0, 0]};
    let fails = |at: &Namespace, filter: DocBuf, code: i32| {
        let request = FindRequest {
            filter: Some(&filter),
            ..FindRequest::default()
        };
        let found = worlds.fixture.store.find(at, &request, &OpContext::new());
        assert_eq!(found.err().unwrap().code().code(), code);
    };
    fails(&worlds.plain, doc! {"g": {"$near": [0, 0]}}, 291);
    fails(&worlds.plain, doc! {"_id": 1, "g": {"$near": [0, 0]}}, 291);
    fails(&worlds.indexed[0], doc! {"g": {"$near": [0, 0]}}, 291);
    fails(
        &worlds.indexed[1],
        doc! {"g": {"$near": {"$geometry": &geojson}}},
        291,
    );
    fails(&worlds.indexed[0], doc! {"h": {"$nearSphere": [0, 0]}}, 291);
    // A missing collection has no documents.
    let none = worlds
        .fixture
        .find_all(&ns("geo.none"), doc! {"g": {"$near": [0, 0]}});
    assert!(none.is_empty());
}

#[test]
fn geo_near_writes_distances() {
    let docs = [
        doc! {"_id": 1, "g": {"type": "Point", "coordinates": [0, 1]}, "kind": 1},
        doc! {"_id": 2, "g": {"type": "Point", "coordinates": [0, 0.5]}, "kind": 1},
        doc! {"_id": 3, "g": [0, 2], "kind": 2},
    ];
    let worlds = Worlds::new(&docs, &[doc! {"key": {"g": "2dsphere"}}]);
    let run = |at: &Namespace, stages: &[DocBuf]| {
        let pipeline: ArrayBuf = stages.iter().collect();
        let request = aggregate_request(&pipeline);
        let mut cursor =
            worlds
                .fixture
                .store
                .aggregate("geo", Some(at), &request, &OpContext::new())?;
        let mut found = Vec::new();
        while let Some(doc) = cursor.next()? {
            found.push(doc);
        }
        Ok::<_, frond_store::Error>(found)
    };
    let point = doc! {"type": "Point", "coordinates": [0, 0]};
    let stage = doc! {"$geoNear": {
        "near": &point, "distanceField": "d.m", "includeLocs": "at", "spherical": true,
        "distanceMultiplier": 0.001, "query": {"kind": 1},
    }};
    let found = run(&worlds.indexed[0], &[stage.clone(), doc! {"$limit": 2}]).unwrap();
    assert_eq!(ids(&found), [2, 1]);
    let degree = std::f64::consts::PI / 180.0 * 6378.1;
    for (doc, degrees) in found.iter().zip([0.5, 1.0]) {
        let distance = doc.get_doc("d").unwrap().get_f64("m").unwrap();
        assert!((distance - degrees * degree).abs() < 1e-6);
        assert_eq!(doc.get("at"), doc.get("g"));
    }
    for (at, code) in [(&worlds.plain, 27), (&ns("geo.none"), 26)] {
        let error = run(at, std::slice::from_ref(&stage)).err().unwrap();
        assert_eq!(error.code().code(), code, "{error:?}");
    }
    for (at, stage, code) in [
        (
            0,
            doc! {"$geoNear": {"near": [0, 0], "distanceField": "d"}},
            291,
        ),
        (
            0,
            doc! {"$geoNear": {"near": &point, "distanceField": "d", "key": "h"}},
            291,
        ),
        (0, doc! {"$geoNear": {"near": &point}}, 16606),
        (0, doc! {"$geoNear": {"distanceField": "d"}}, 5860400),
        (
            0,
            doc! {"$geoNear": {"near": &point, "distanceField": "d", "limit": 5}},
            50858,
        ),
        (
            0,
            doc! {"$geoNear": {"near": &point, "distanceField": "d", "key": ""}},
            2,
        ),
        (
            0,
            doc! {"$geoNear": {"near": [179, -91], "distanceField": "d", "spherical": true}},
            17444,
        ),
    ] {
        let error = run(&worlds.indexed[at], &[stage]).err().unwrap();
        assert_eq!(error.code().code(), code, "{error:?}");
    }
}

fn aggregate_request(pipeline: &Doc) -> AggregateRequest<'_> {
    AggregateRequest {
        collation: None,
        pipeline,
        hint: None,
        variables: None,
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: None,
    }
}
