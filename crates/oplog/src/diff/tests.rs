use frond_bson::{ArrayBuf, array, doc};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// The difference, checked by applying it.
fn checked(old: &Doc, new: &Doc, diff: DocBuf) -> DocBuf {
    let applied = apply(&diff, old).unwrap();
    assert_eq!(applied.as_bytes(), new.as_bytes(), "{diff:?} of {old:?}");
    diff
}

fn compared(old: &Doc, new: &Doc) -> DocBuf {
    let nothing_left_out = |_: &[u8]| true;
    checked(
        old,
        new,
        diff_of_parts(old, new, &nothing_left_out).unwrap(),
    )
}

fn of_operators(old: &Doc, new: &Doc, paths: &[(&str, bool)]) -> DocBuf {
    let set = SetPaths::new(paths.iter().copied());
    checked(old, new, diff_of_operators(old, new, &set, None).unwrap())
}

#[test]
fn the_sections_are_those_of_mongodb() {
    let long = "x".repeat(60);
    let cases = [
        (doc! {"a": 1}, doc! {"a": 1}, doc! {}),
        (doc! {"a": 1}, doc! {"a": 2}, doc! {"u": {"a": 2}}),
        (doc! {"a": 1}, doc! {"a": "1"}, doc! {"u": {"a": "1"}}),
        (doc! {"a": 1}, doc! {"a": 1, "b": 2}, doc! {"i": {"b": 2}}),
        (
            doc! {"a": 1, "b": 2},
            doc! {"b": 2},
            doc! {"d": {"a": false}},
        ),
        // A field that moves is appended.
        (
            doc! {"a": 1, "b": 2, "c": 3},
            doc! {"b": 2, "c": 3, "a": 1},
            doc! {"i": {"a": 1}},
        ),
        (
            doc! {"a": 1, "b": 2},
            doc! {"c": 1, "b": 2},
            doc! {"d": {"a": false}, "i": {"c": 1, "b": 2}},
        ),
        // Sub-documents.
        (
            doc! {"s": {"a": 1, "t": &long}},
            doc! {"s": {"a": 2, "t": &long}},
            doc! {"ss": {"u": {"a": 2}}},
        ),
        (
            doc! {"s": {"a": {"b": 1, "t": &long}}, "z": 1},
            doc! {"s": {"a": {"t": &long}}, "z": 2},
            doc! {"u": {"z": 2}, "ss": {"sa": {"d": {"b": false}}}},
        ),
        // A sub-document smaller than its difference.
        (
            doc! {"s": {"a": 1}},
            doc! {"s": {"b": 1}},
            doc! {"u": {"s": {"b": 1}}},
        ),
        (
            doc! {"s": {"a": 1}},
            doc! {"s": [1]},
            doc! {"u": {"s": [1]}},
        ),
        // Arrays.
        (
            doc! {"x": [&long, 1, 2]},
            doc! {"x": [&long, 5, 2]},
            doc! {"sx": {"a": true, "u1": 5}},
        ),
        (
            doc! {"x": [&long, 1, 2]},
            doc! {"x": [&long, 1]},
            doc! {"sx": {"a": true, "l": 2}},
        ),
        (
            doc! {"x": [&long, 1, 2]},
            doc! {"x": [&long, 2]},
            doc! {"sx": {"a": true, "l": 2, "u1": 2}},
        ),
        (
            doc! {"x": [&long]},
            doc! {"x": [&long, 2, 3]},
            doc! {"sx": {"a": true, "u1": 2, "u2": 3}},
        ),
        (
            doc! {"x": [{"a": 1, "t": &long}, [&long, 1]]},
            doc! {"x": [{"a": 2, "t": &long}, [&long, 2]]},
            doc! {"sx": {"a": true, "s0": {"u": {"a": 2}}, "s1": {"a": true, "u1": 2}}},
        ),
        // Names that look like sections, indexes or nothing.
        (
            doc! {"u": 1, "0": {"l": 1, "t": &long}, "": {"a": 1, "t": &long}},
            doc! {"u": 2, "0": {"l": 2, "t": &long}, "": {"a": 2, "t": &long}},
            doc! {"u": {"u": 2}, "s0": {"u": {"l": 2}}, "s": {"u": {"a": 2}}},
        ),
        (
            doc! {"a.b": 1, "$c": 1},
            doc! {"a.b": 2, "$c": 3},
            doc! {"u": {"a.b": 2, "$c": 3}},
        ),
    ];
    for (old, new, expected) in &cases {
        assert_eq!(compared(old, new), *expected, "{old:?} to {new:?}");
    }
}

#[test]
fn a_difference_that_is_not_smaller_is_none() {
    let long = "x".repeat(100);
    assert_eq!(diff(&doc! {"_id": 1, "a": 1}, &doc! {"_id": 1}), None);
    let (old, new) = (
        doc! {"_id": 1, "a": 1, "t": &long},
        doc! {"_id": 1, "a": 2, "t": &long},
    );
    assert_eq!(diff(&old, &new), Some(doc! {"u": {"a": 2}}));
    // That of operators is made in any case.
    let unset = of_operators(&doc! {"_id": 1, "a": 1}, &doc! {"_id": 1}, &[("a", false)]);
    assert_eq!(unset, doc! {"d": {"a": false}});
}

#[test]
fn what_an_operator_sets_is_in_the_difference_whole() {
    let long = "x".repeat(60);
    let old = doc! {"a": {"b": 1, "t": &long}, "x": [1, {"b": 1, "t": &long}, 3]};
    let new = doc! {"a": {"b": 2, "t": &long}, "x": [1, {"b": 2, "t": &long}, 3]};
    let inner = doc! {"sa": {"u": {"b": 2}}, "sx": {"a": true, "s1": {"u": {"b": 2}}}};
    for positional in ["x.1.b", "x.$.b", "x.$[].b", "x.$[name].b"] {
        let paths = [("a.b", false), (positional, false)];
        assert_eq!(of_operators(&old, &new, &paths), inner);
    }
    let whole = of_operators(&old, &new, &[("a", false), ("x", false)]);
    assert_eq!(whole, doc! {"u": &new});
    let element = of_operators(&old, &new, &[("a.b", false), ("x.1", false)]);
    let x = doc! {"a": true, "u1": {"b": 2, "t": &long}};
    assert_eq!(element, doc! {"sa": {"u": {"b": 2}}, "sx": x});
}

#[test]
fn what_push_adds_is_in_the_difference_by_its_index() {
    let (old, new) = (doc! {"x": [1]}, doc! {"x": [1, 2, 3]});
    let pushed = of_operators(&old, &new, &[("x", true)]);
    assert_eq!(pushed, doc! {"sx": {"a": true, "u1": 2, "u2": 3}});
    let set = of_operators(&old, &new, &[("x", false)]);
    assert_eq!(set, doc! {"u": {"x": [1, 2, 3]}});
    // As `$slice` and `$sort` do.
    let moved = of_operators(&old, &doc! {"x": [0, 1]}, &[("x", true)]);
    assert_eq!(moved, doc! {"u": {"x": [0, 1]}});
    let empty = of_operators(&doc! {"x": []}, &doc! {"x": [1]}, &[("x", true)]);
    assert_eq!(empty, doc! {"sx": {"a": true, "u0": 1}});
}

/// A document with two fields of the same name.
fn twins(a: i32, b: i32) -> DocBuf {
    let mut out = doc! {"_id": 1, "a": a};
    out.push("a", b);
    out
}

#[test]
fn fields_of_the_same_name_have_no_difference() {
    let long = "x".repeat(100);
    let mut other = twins(1, 2);
    other.push("t", &*long);
    let mut changed = twins(1, 3);
    changed.push("t", &*long);
    assert_eq!(diff(&other, &changed), None);
    assert_eq!(diff(&doc! {"a": 1}, &other), None);
    assert_eq!(diff(&other, &doc! {"t": &long}), None);
    let (old, new) = (doc! {"s": &other, "t": 1}, doc! {"s": &changed, "t": 2});
    assert_eq!(compared(&old, &new), doc! {"u": &new});
}

#[test]
fn arrays_with_other_names_are_replaced() {
    let long = "x".repeat(100);
    let odd = |n: i32| {
        let elements = doc! {"0": &long, "7": n};
        let mut out = DocBuf::new();
        out.push_value("x", &Value::Array(&elements));
        out
    };
    assert_eq!(compared(&odd(1), &odd(2)), doc! {"u": &odd(2)});
}

#[test]
fn a_part_of_a_document_is_never_set_whole() {
    let (old, new) = (doc! {"s": {"a": 1}}, doc! {"s": {"b": 1}});
    let is_whole = |path: &[u8]| path != b"s\0";
    let diff = diff_of_parts(&old, &new, &is_whole);
    assert_eq!(diff, Some(doc! {"ss": {"d": {"a": false}, "i": {"b": 1}}}));
    let set = SetPaths::new([("s", false)]);
    let diff = diff_of_operators(&old, &new, &set, Some(&is_whole));
    assert_eq!(diff, Some(doc! {"ss": {"d": {"a": false}, "i": {"b": 1}}}));
    // It cannot be expressed.
    let new = doc! {"s": 5};
    assert_eq!(diff_of_parts(&old, &new, &is_whole), None);
    let (old, new) = (doc! {"s": {}, "a": 1}, doc! {"a": 1, "s": {}});
    assert_eq!(diff_of_parts(&old, &new, &is_whole), None);
}

#[test]
fn what_does_not_fit_the_document_is_left_out_as_in_mongodb() {
    let diff =
        doc! {"u": {"new": 1}, "ss": {"u": {"a": 1}}, "sx": {"a": true, "u3": 1, "s5": {"u": {}}}};
    let applied = apply(&diff, &doc! {"s": 1, "x": [0]}).unwrap();
    assert_eq!(applied, doc! {"s": 1, "x": [0, null, null, 1], "new": 1});
    for wrong in [
        doc! {"x": {}},
        doc! {"u": 1},
        doc! {"sx": 1},
        doc! {"sx": {"a": true, "q1": 1}},
        doc! {"sx": {"a": true, "l": "1"}},
        doc! {"sx": {"a": true, "u": 1}},
    ] {
        assert!(apply(&wrong, &doc! {"x": [1]}).is_err(), "{wrong:?}");
    }
}

/// Random documents of few names, so that fields meet.
struct Random(SmallRng);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.random_range(0..bound)
    }

    fn document(&mut self, depth: u64) -> DocBuf {
        let mut out = DocBuf::new();
        for _ in 0..self.below(6) {
            let names = ["a", "b", "c", "d", "u", "s", "0", "1", ""];
            let name = names[self.below(names.len() as u64) as usize];
            // One document in some has fields of the same name.
            if out.contains_key(name) && self.below(50) > 0 {
                continue;
            }
            self.push(&mut out, name, depth);
        }
        out
    }

    fn push(&mut self, out: &mut DocBuf, name: &str, depth: u64) {
        match self.below(if depth > 3 { 3 } else { 6 }) {
            0 => out.push(name, self.below(3) as i32),
            1 => out.push(name, &*"y".repeat(self.below(40) as usize)),
            2 => out.push(name, Value::Null),
            3 | 4 => out.push(name, &*self.document(depth + 1)),
            _ => {
                let array = self.array(depth + 1);
                out.push(name, &array);
            }
        }
    }

    fn array(&mut self, depth: u64) -> ArrayBuf {
        let mut out = array![];
        for _ in 0..self.below(5) {
            let mut one = DocBuf::new();
            self.push(&mut one, "x", depth);
            out.push(one.get("x").unwrap());
        }
        out
    }

    /// The document with some values changed.
    fn changed(&mut self, doc: &Doc, depth: u64) -> DocBuf {
        let mut out = DocBuf::new();
        for (name, value) in doc.iter() {
            match (self.below(6), value) {
                (0, _) => {}
                (1, _) => self.push(&mut out, name, depth),
                (_, Value::Document(inner)) => out.push(name, &*self.changed(inner, depth + 1)),
                (_, Value::Array(inner)) => {
                    let mut array = array![];
                    for (_, value) in self.changed(inner, depth + 1).iter() {
                        array.push(value);
                    }
                    out.push(name, &array);
                }
                (_, value) => out.push(name, value),
            }
        }
        if self.below(3) == 0 {
            self.push(&mut out, "new", depth);
        }
        out
    }
}

#[test]
fn applying_a_difference_restores_the_document_byte_for_byte() {
    let mut random = Random(SmallRng::seed_from_u64(7));
    let mut told = 0;
    for _ in 0..20_000 {
        let old = random.document(0);
        let new = match random.below(4) {
            0 => random.document(0),
            _ => random.changed(&old, 0),
        };
        let has_twins = old.has_duplicate_names() || new.has_duplicate_names();
        let nothing_left_out = |_: &[u8]| true;
        let found = diff_of_parts(&old, &new, &nothing_left_out);
        assert_eq!(found.is_none(), has_twins, "{old:?} to {new:?}");
        if let Some(found) = found {
            Doc::validate(found.as_bytes()).unwrap();
            checked(&old, &new, found);
            told += 1;
        }
        let paths = ["a", "b.a", "c.0", "d.$[].a", "u.u", "s"];
        let paths = paths.map(|path| (path, random.below(2) == 0));
        let set = SetPaths::new(paths);
        if let Some(found) = diff_of_operators(&old, &new, &set, None) {
            checked(&old, &new, found);
        }
        if let Some(found) = diff(&old, &new) {
            assert!(found.len_bytes() < new.len_bytes());
            checked(&old, &new, found);
        }
    }
    assert!(told > 10_000);
}

/// A client sends differences by `applyOps`.
#[test]
fn a_gap_of_an_array_cannot_exhaust_the_memory() {
    let huge = doc! {"sa": {"a": true, "u4000000000": 1}};
    assert!(apply(&huge, &doc! {"a": []}).is_err());
    let gap = doc! {"sa": {"a": true, "u2": 1}};
    assert_eq!(
        apply(&gap, &doc! {"a": []}).unwrap(),
        doc! {"a": [Value::Null, Value::Null, 1]}
    );
}
