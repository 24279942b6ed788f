//! Random computations over random documents, and over others that have only what they need.

use super::*;
use crate::update::ApplyContext;
use frond_bson::extjson;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Random texts in the notation of the shell.
pub(super) struct Random(StdRng);

impl Random {
    pub(super) fn seeded(seed: u64) -> Random {
        Random(StdRng::seed_from_u64(seed))
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    pub(super) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn scalar(&mut self) -> String {
        let number = self.below(4);
        match self.below(8) {
            0 => "null".to_owned(),
            1 => format!("'{}'", self.pick(&["a", "b", ""])),
            2 => format!("NumberLong({number})"),
            3 => format!("{number}.5"),
            4 => self.pick(&["true", "false"]).to_owned(),
            _ => number.to_string(),
        }
    }

    fn value(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 3 } else { 9 }) {
            0..=2 => self.scalar(),
            3 | 4 => {
                let items: Vec<_> = (0..self.below(4)).map(|_| self.value(depth - 1)).collect();
                format!("[{}]", items.join(", "))
            }
            _ => self.document(depth - 1, ""),
        }
    }

    pub(super) fn document(&mut self, depth: usize, first: &str) -> String {
        let mut names = vec!["a", "b", "c", "d", "0", "1"];
        let mut fields = vec![first.to_owned()];
        for _ in 0..self.below(6) {
            let name = names.remove(self.below(names.len()));
            fields.push(format!("'{name}': {}", self.value(depth)));
        }
        fields.retain(|field| !field.is_empty());
        format!("{{{}}}", fields.join(", "))
    }

    pub(super) fn path(&mut self) -> String {
        let mut path = self.pick(&["a", "b", "c", "d"]).to_owned();
        for _ in 0..self.below(3) {
            path.push('.');
            path.push_str(self.pick(&["a", "b", "c", "d", "0", "1"]));
        }
        path
    }

    /// A path that expressions accept.
    pub(super) fn field(&mut self) -> String {
        format!("'${}'", self.path())
    }

    pub(super) fn expression(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(3) {
                0 => format!("{{$literal: {}}}", self.value(1)),
                _ => self.field(),
            };
        }
        let [a, b] = [self.expression(depth - 1), self.expression(depth - 1)];
        match self.below(9) {
            0 => format!("{{$eq: [{a}, {b}]}}"),
            1 => format!("{{$cond: [{a}, {b}, '$$REMOVE']}}"),
            2 => format!("{{$add: [{a}, {b}]}}"),
            3 => format!("{{$ifNull: [{a}, {b}]}}"),
            4 => format!("{{$let: {{vars: {{v: {a}}}, in: ['$$v.a', {b}]}}}}"),
            5 => format!("{{$map: {{input: {a}, in: {{$type: ['$$this.b']}}}}}}"),
            6 => format!("{{$size: [{a}]}}"),
            7 => format!("{{x: {a}, y: [{b}]}}"),
            _ => "{$getField: 'a'}".to_owned(),
        }
    }

    fn condition(&mut self) -> String {
        let operand = self.value(1);
        let scalar = self.scalar();
        match self.below(12) {
            0..=2 => operand,
            3 => format!("{{$gt: {scalar}}}"),
            4 => format!("{{$in: [{operand}, {scalar}]}}"),
            5 => format!("{{$exists: {}}}", self.pick(&["true", "false"])),
            6 => format!("{{$type: [{}]}}", self.pick(&["1", "2", "3", "4", "16"])),
            7 => format!("{{$size: {}}}", self.below(3)),
            8 => format!("{{$not: {{$gte: {scalar}}}}}"),
            9 => format!("{{$elemMatch: {}}}", self.filter(0)),
            10 => format!("{{$elemMatch: {{$lt: {scalar}}}}}"),
            _ => format!("{{$all: [{scalar}]}}"),
        }
    }

    pub(super) fn filter(&mut self, depth: usize) -> String {
        let mut parts = Vec::new();
        for _ in 0..=self.below(2) {
            parts.push(match self.below(if depth == 0 { 4 } else { 6 }) {
                4 => format!(
                    "{}: [{}, {}]",
                    self.pick(&["$and", "$or", "$nor"]),
                    self.filter(depth - 1),
                    self.filter(depth - 1)
                ),
                5 => format!("$expr: {}", self.expression(2)),
                _ => format!("'{}': {}", self.path(), self.condition()),
            });
        }
        format!("{{{}}}", parts.join(", "))
    }

    pub(super) fn sort(&mut self) -> String {
        let paths: BTreeSet<String> = (0..=self.below(2)).map(|_| self.path()).collect();
        let fields: Vec<_> = (paths.iter())
            .map(|path| format!("'{path}': {}", self.pick(&["1", "-1"])))
            .collect();
        format!("{{{}}}", fields.join(", "))
    }

    fn projection(&mut self) -> String {
        let mut fields = vec![format!("_id: {}", self.pick(&["0", "1"]))];
        for _ in 0..=self.below(2) {
            let (path, rule) = match self.below(6) {
                0 => (self.path(), self.expression(1)),
                1 => (self.path(), "{$slice: 1}".to_owned()),
                2 => (
                    "a".to_owned(),
                    format!("{{$elemMatch: {}}}", self.filter(0)),
                ),
                _ => (self.path(), "1".to_owned()),
            };
            fields.push(format!("'{path}': {rule}"));
        }
        format!("{{{}}}", fields.join(", "))
    }

    /// The path of an update operator, with what is positional in some.
    fn target(&mut self) -> String {
        let mut path = self.path();
        if self.below(4) == 0 {
            path.push('.');
            path.push_str(self.pick(&["$", "$[]", "$[x]"]));
            if self.below(2) == 0 {
                path.push_str(".b");
            }
        }
        path
    }

    fn operators(&mut self) -> String {
        let mut parts: Vec<(&str, Vec<String>)> = Vec::new();
        for _ in 0..=self.below(4) {
            let path = self.target();
            let scalar = self.scalar();
            let (name, argument) = match self.below(14) {
                0..=2 => ("$set", self.value(1)),
                3 => ("$unset", "1".to_owned()),
                4 | 5 => ("$inc", self.pick(&["1", "NumberLong(2)", "0.5"]).to_owned()),
                6 => ("$mul", "2".to_owned()),
                7 => (self.pick(&["$min", "$max"]), scalar),
                8 => ("$push", scalar),
                9 => ("$addToSet", self.value(1)),
                10 => ("$pop", "1".to_owned()),
                11 => ("$pull", format!("{{$gte: {scalar}}}")),
                12 => ("$rename", format!("'{}'", self.path())),
                _ => ("$setOnInsert", scalar),
            };
            let field = format!("'{path}': {argument}");
            match parts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, fields)) => fields.push(field),
                None => parts.push((name, vec![field])),
            }
        }
        let parts: Vec<_> = (parts.iter())
            .map(|(name, fields)| format!("{name}: {{{}}}", fields.join(", ")))
            .collect();
        format!("{{{}}}", parts.join(", "))
    }

    fn pipeline(&mut self) -> String {
        let mut stages = Vec::new();
        for _ in 0..=self.below(2) {
            stages.push(match self.below(8) {
                0 => format!("{{$unset: ['{}', '{}']}}", self.path(), self.path()),
                1 => format!("{{$project: {{'{}': 0}}}}", self.path()),
                2 => format!("{{$project: {{'{}': 1}}}}", self.path()),
                3 => format!("{{$replaceWith: {}}}", self.field()),
                _ => {
                    let fields: Vec<_> = (0..=self.below(2))
                        .map(|_| format!("'{}': {}", self.path(), self.expression(1)))
                        .collect();
                    format!("{{$set: {{{}}}}}", fields.join(", "))
                }
            });
        }
        format!("[{}]", stages.join(", "))
    }

    /// The document without some of the fields at unrelated paths, and with other values in others.
    pub(super) fn scramble(&mut self, doc: &Doc, required: &RequiredFields, above: &str) -> DocBuf {
        let mut scrambled = DocBuf::new();
        for element in doc.iter_raw() {
            let path = below(above, element.name());
            let old = element.value().unwrap();
            match (required.requirement(&path), old) {
                (Requirement::Part, Value::Document(inner)) => {
                    scrambled.push(element.name(), &self.scramble(inner, required, &path));
                }
                (Requirement::None, _) if self.below(2) == 0 => {}
                (Requirement::None, old) => {
                    let mut new = value(&self.value(2));
                    for _ in 0..1000 {
                        if new.as_value().type_code() == old.type_code() {
                            break;
                        }
                        new = value(&self.value(2));
                    }
                    scrambled.push(element.name(), &new);
                }
                _ => scrambled.push_raw(&element),
            }
        }
        scrambled
    }
}

fn below(above: &str, name: &str) -> String {
    match above {
        "" => name.to_owned(),
        above => format!("{above}.{name}"),
    }
}

/// `doc` with the changes that an update made to a document which has the needed fields of `doc`.
fn with_changes(doc: &Doc, changed: &Doc, required: &RequiredFields, above: &str) -> DocBuf {
    if required.is_whole() {
        return changed.to_owned();
    }
    let mut out = DocBuf::new();
    for element in doc.iter_raw() {
        let name = element.name();
        let path = below(above, name);
        let new = changed.get(name);
        match (required.requirement(&path), element.value().unwrap(), new) {
            (Requirement::None, ..) => out.push_raw(&element),
            (Requirement::Part, Value::Document(old), Some(Value::Document(new))) => {
                out.push(name, &with_changes(old, new, required, &path));
            }
            (_, _, Some(new)) => out.push_value(name, &new),
            (_, _, None) => {}
        }
    }
    for element in changed.iter_raw() {
        if doc.get(element.name()).is_none() {
            out.push_raw(&element);
        }
    }
    out
}

pub(super) fn outcome<T>(result: Result<T>) -> Result<T, (i32, String)> {
    result.map_err(|error| (error.code().code(), error.message().to_owned()))
}

pub(super) fn text(doc: &Doc) -> String {
    extjson::to_relaxed(doc)
}

/// Runs `check` with random documents and with copies that have only the fields that `required` names.
/// `check` returns whether there was a result.
fn hold<T>(
    seed: u64,
    mut make: impl FnMut(&mut Random) -> (String, Result<T>),
    required: impl Fn(&T) -> RequiredFields,
    check: impl Fn(&T, &Doc, &Doc, &mut Random, &str) -> bool,
) {
    let mut random = Random::seeded(seed);
    let (mut parsed, mut partial, mut fruitful) = (0, 0, 0);
    for _ in 0..1500 {
        let (source, computation) = make(&mut random);
        let Ok(computation) = computation else {
            continue;
        };
        parsed += 1;
        let required = required(&computation);
        for _ in 0..3 {
            let doc = json(&random.document(3, "_id: 7"));
            let mut other = random.scramble(&doc, &required, "");
            if random.below(4) == 0 {
                other = required.part_of(&doc);
            }
            assert_eq!(required.part_of(&other), required.part_of(&doc));
            partial += usize::from(other != doc);
            let shown = format!("{source} on {} and {}", text(&doc), text(&other));
            fruitful += usize::from(check(&computation, &doc, &other, &mut random, &shown));
        }
    }
    // Otherwise the property would hold only because there were no cases.
    assert!(parsed > 500, "{parsed}");
    assert!(partial > parsed, "{partial} of {parsed}");
    assert!(fruitful > parsed / 5, "{fruitful} of {parsed}");
}

#[test]
fn filters_see_what_they_need() {
    hold(
        1,
        |random| {
            let source = random.filter(2);
            let parsed = filter(&source);
            (source, parsed)
        },
        Filter::required_fields,
        |filter, doc, other, _, shown| {
            let result = outcome(filter.try_matches(doc));
            assert_eq!(outcome(filter.try_matches(other)), result, "{shown}");
            result.is_ok_and(|matched| matched)
        },
    );
}

#[test]
fn sorts_see_what_they_need() {
    hold(
        2,
        |random| {
            let source = random.sort();
            let parsed = SortSpec::parse(&json(&source));
            (source, parsed)
        },
        SortSpec::required_fields,
        |sort, doc, other, _, shown| {
            let result = outcome(sort.key(doc));
            assert_eq!(outcome(sort.key(other)), result, "{shown}");
            result.is_ok_and(|key| key != sort.key(Doc::empty()).unwrap())
        },
    );
}

#[test]
fn projections_see_what_they_need() {
    hold(
        3,
        |random| {
            let source = random.projection();
            let parsed = projection(&source);
            (source, parsed)
        },
        Projection::required_fields,
        |projection, doc, other, _, shown| {
            let result = outcome(projection.apply(doc));
            assert_eq!(outcome(projection.apply(other)), result, "{shown}");
            result.is_ok_and(|doc| doc.count() > 1)
        },
    );
}

fn updates_see_what_they_need(seed: u64, make: fn(&mut Random) -> String) {
    hold(
        seed,
        |random| {
            let source = make(random);
            let filter = random.pick(&["{x: {$gt: 1}}", "{'x.b': {$ne: 1}}"]);
            let filters: &[&str] = if source.contains("$[x]") {
                &[filter]
            } else {
                &[]
            };
            let parsed = update(&source, filters);
            (source, parsed)
        },
        Update::required_fields,
        |update, doc, other, random, shown| {
            let context = ApplyContext {
                positional: [None, Some(0), Some(1)][random.below(3)],
                ..ApplyContext::at(7)
            };
            let result = outcome(update.apply(doc, &context));
            let partial = outcome(update.apply(other, &context));
            match (result, partial) {
                (Ok(result), Ok(partial)) => {
                    assert_eq!(result.modified, partial.modified, "{shown}");
                    let rebuilt = with_changes(doc, &partial.doc, &update.required_fields(), "");
                    assert_eq!(text(&rebuilt), text(&result.doc), "{shown}");
                    assert_eq!(rebuilt, result.doc, "{shown}");
                    result.modified
                }
                (result, partial) => {
                    assert_eq!(
                        partial.map(|applied| applied.modified),
                        result.map(|applied| applied.modified),
                        "{shown}"
                    );
                    false
                }
            }
        },
    );
}

#[test]
fn update_operators_see_what_they_need() {
    updates_see_what_they_need(4, Random::operators);
}

#[test]
fn update_pipelines_see_what_they_need() {
    updates_see_what_they_need(5, Random::pipeline);
}
