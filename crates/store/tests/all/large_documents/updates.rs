//! Random operations on stored documents: updates with every operator, filters, projections.

use frond_bson::{ArrayBuf, Doc, DocBuf, OwnedValue, Value, doc, tag};

use crate::large_documents::model::Docs;
use crate::large_documents::operations::{Op, UpdateOp, names_one};
use crate::large_documents::values::{Random, id_of};

/// The shape of random operations.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of different `_id`s.
    pub ids: usize,
    /// The approximate size of documents.
    pub bytes: usize,
    /// Whether most updates change the same few fields, so that pending changes of one field accumulate.
    pub hot: bool,
}

/// A path in a document, with the type at its end.
#[derive(Clone, Debug)]
pub struct FieldAt {
    pub path: String,
    pub tag: u8,
    /// Whether the path passes through an array.
    pub in_array: bool,
    pub value: OwnedValue,
}

const EACH_OPERATOR: &[&str] = &[
    "$set",
    "$set",
    "$inc",
    "$inc",
    "$inc",
    "$unset",
    "$mul",
    "$min",
    "$max",
    "$rename",
    "$setOnInsert",
    "$bit",
    "$push",
    "$push",
    "$pull",
    "$pullAll",
    "$pop",
    "$addToSet",
];

/// Whether two paths are equal, or one is the beginning of the other.
fn is_conflict(path: &str, other: &str) -> bool {
    let (short, long) = if path.len() < other.len() {
        (path, other)
    } else {
        (other, path)
    };
    long.strip_prefix(short)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Random {
    /// A random field of a document, at any level.
    pub fn field(&mut self, doc: &Doc) -> Option<FieldAt> {
        let mut path = String::new();
        let mut in_array = false;
        let mut at = doc;
        loop {
            let count = at.count();
            if count == 0 {
                return None;
            }
            let element = at.iter_raw().nth(self.below(count))?;
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(element.name());
            let value = element.value()?;
            match value {
                Value::Document(inner) | Value::Array(inner)
                    if !inner.is_empty() && !self.one_in(5) =>
                {
                    in_array |= element.tag() == tag::ARRAY;
                    at = inner;
                }
                _ => {
                    return Some(FieldAt {
                        path,
                        tag: element.tag(),
                        in_array,
                        value: value.into(),
                    });
                }
            }
        }
    }

    /// A field of one of these types, or of any type if there are none; rarely of another type.
    fn field_of(&mut self, doc: &Doc, tags: &[u8]) -> Option<FieldAt> {
        for _ in 0..20 {
            let field = self.field(doc)?;
            if tags.is_empty() || tags.contains(&field.tag) || self.one_in(100) {
                return Some(field);
            }
        }
        None
    }

    /// A path to change: that of a field, one beside it, or a new one.
    fn path(&mut self, doc: &Doc, tags: &[u8]) -> String {
        let Some(field) = self.field_of(doc, tags) else {
            return self.name(20);
        };
        let mut path = field.path;
        match self.below(14) {
            0 => {
                let name = self.name(200);
                match path.rsplit_once('.') {
                    Some((front, _)) => path = format!("{front}.{name}"),
                    None => path = name,
                }
            }
            1 => {
                let name = self.name(200);
                path = format!("{path}.{name}");
            }
            2 => path = self.name(20),
            _ => {}
        }
        // The operators that stand for elements of arrays.
        if field.in_array && self.one_in(3) {
            let with = self.pick(&["$[]", "$", "$[e]"]);
            let mut parts: Vec<&str> = path.split('.').collect();
            let numbers: Vec<usize> = (1..parts.len())
                .filter(|at| parts[*at].parse::<u32>().is_ok())
                .collect();
            if !numbers.is_empty() {
                parts[numbers[self.below(numbers.len())]] = with;
            }
            path = parts.join(".");
        }
        path
    }

    fn list(&mut self) -> ArrayBuf {
        let count = self.below(4);
        self.array(count, 1)
    }

    fn push_argument(&mut self) -> OwnedValue {
        if self.one_in(2) {
            return self.value(1);
        }
        let mut out = doc! {"$each": self.list()};
        if self.one_in(2) {
            out.push("$slice", self.below(12) as i32 - 6);
        }
        match self.below(4) {
            0 => out.push("$sort", [1, -1][self.below(2)]),
            1 => out.push("$sort", &doc! {"k0": 1}),
            _ => {}
        }
        if self.one_in(3) {
            out.push("$position", self.below(8) as i32 - 3);
        }
        out.into()
    }

    /// An operator's argument for a path.
    fn argument(&mut self, operator: &str, doc: &Doc, path: &str, bytes: usize) -> OwnedValue {
        match operator {
            "$unset" => "".into(),
            "$inc" if !self.one_in(40) => match self.below(3) {
                0 => self.number(),
                1 => OwnedValue::Int64(self.below(100) as i64 - 50),
                _ => OwnedValue::Int32(self.below(100) as i32 - 50),
            },
            "$mul" if !self.one_in(20) => self.number(),
            "$rename" => self.path(doc, &[]).into(),
            "$bit" => {
                let operation = self.pick(&["and", "or", "xor"]);
                let n = self.integer();
                let n = i32::try_from(n).map_or(OwnedValue::Int64(n), OwnedValue::Int32);
                doc! {operation: n}.into()
            }
            "$push" => self.push_argument(),
            "$addToSet" if self.one_in(2) => doc! {"$each": self.list()}.into(),
            "$pull" => match self.below(4) {
                0 => doc! {"$gte": self.number()}.into(),
                1 => doc! {"$in": self.list()}.into(),
                2 => doc! {"k0": self.number()}.into(),
                _ => self.number(),
            },
            "$pullAll" => self.list().into(),
            "$pop" => [1, -1][self.below(2)].into(),
            "$set" => match self.below(12) {
                // The stored value, or a large one.
                0 => doc.path(path).map_or(OwnedValue::Null, Into::into),
                1 | 2 => {
                    let content = self.content();
                    let count = self.below(bytes / 20 + 2);
                    self.container(count, content, 2).into()
                }
                3 => {
                    let count = self.below(bytes / 20 + 2);
                    self.array(count, 1).into()
                }
                4..=6 => self.number(),
                _ => self.value(2),
            },
            _ => self.value(1),
        }
    }

    /// A document of update operators, with the array filters that its paths name.
    fn operators(&mut self, doc: &Doc, bytes: usize) -> (DocBuf, Vec<DocBuf>) {
        let mut update = DocBuf::new();
        let mut has_filter = false;
        let mut used: Vec<String> = Vec::new();
        for _ in 0..1 + self.below(3) {
            let operator = self.pick(EACH_OPERATOR);
            if update.contains_key(operator) {
                continue;
            }
            let tags: &[u8] = match operator {
                "$inc" | "$mul" | "$bit" => &[tag::INT32, tag::INT64],
                "$push" | "$pull" | "$pullAll" | "$pop" | "$addToSet" => &[tag::ARRAY],
                "$unset" if self.one_in(6) => &[tag::DOCUMENT],
                _ => &[],
            };
            let mut fields = DocBuf::new();
            let most = if self.one_in(6) { 12 } else { 3 };
            for _ in 0..1 + self.below(most) {
                let mut path = self.path(doc, tags);
                if path.is_empty() || fields.contains_key(&path) {
                    path = format!("new{}", self.below(50));
                }
                // Few updates change an _id.
                if (path == "_id" || path.starts_with("_id.")) && !self.one_in(10) {
                    continue;
                }
                let argument = self.argument(operator, doc, &path, bytes);
                let mut paths = vec![path.clone()];
                if let (OwnedValue::String(other), "$rename") = (&argument, operator) {
                    paths.push(other.clone());
                }
                // Few updates have paths that conflict.
                let conflict = |path: &String| used.iter().any(|other| is_conflict(path, other));
                if paths.iter().any(conflict) && !self.one_in(50) {
                    continue;
                }
                used.extend(paths);
                has_filter |= path.contains("$[e]");
                fields.push(&path, &argument);
            }
            if !fields.is_empty() {
                update.push(operator, &fields);
            }
        }
        let filters = if !has_filter {
            Vec::new()
        } else if self.one_in(4) {
            vec![doc! {"e.k0": {"$exists": true}}]
        } else {
            vec![doc! {"e": {"$gte": self.number()}}]
        };
        (update, filters)
    }

    fn pipeline(&mut self, doc: &Doc) -> OwnedValue {
        let mut stages = ArrayBuf::new();
        for _ in 0..1 + self.below(2) {
            let path = match self.field(doc) {
                Some(field) if !self.one_in(3) => field.path,
                _ => self.name(30),
            };
            let other = self.field(doc).map_or("a".to_owned(), |field| field.path);
            let expression = match self.below(4) {
                0 => doc! {"$literal": self.value(1)}.into(),
                1 => doc! {"$add": [1, {"$ifNull": [format!("${other}"), 0]}]}.into(),
                2 => doc! {"$objectToArray": "$n"}.into(),
                _ => OwnedValue::from(format!("${other}")),
            };
            if self.one_in(4) && !path.is_empty() {
                // To the end of its document.
                stages.push(&doc! {"$unset": [&path]});
                stages.push(&doc! {"$set": {path: {"$literal": self.value(1)}}});
                continue;
            }
            let stage = match self.below(5) {
                0 => doc! {"$unset": [path]},
                1 => doc! {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"r": expression}]}},
                2 => doc! {"$project": {path: 0}},
                _ => doc! {"$set": {path: expression}},
            };
            stages.push(&stage);
        }
        stages.into()
    }

    /// The document with one field, at any level, moved to the end or to the front.
    fn reordered(&mut self, doc: &Doc) -> DocBuf {
        let at = 1 + self.below(doc.count().saturating_sub(1));
        let mut out = DocBuf::new();
        let mut moved = None;
        let in_front = self.one_in(3);
        for (place, element) in doc.iter_raw().enumerate() {
            match element.value() {
                Some(Value::Document(inner))
                    if place == at && !inner.is_empty() && !self.one_in(4) =>
                {
                    let inner = self.reordered(inner);
                    out.push(element.name(), &inner);
                }
                _ if place == at => moved = Some(element),
                _ => out.push_raw(&element),
            }
        }
        if let Some(moved) = moved {
            if in_front && moved.name() != "_id" && !out.contains_key("_id") {
                let mut front = DocBuf::new();
                front.push_raw(&moved);
                front.push_all(&out);
                return front;
            }
            out.push_raw(&moved);
        }
        out
    }

    /// Changes a few fields of a sub-document, mostly the same few again.
    fn hot_update(&mut self, doc: &Doc) -> DocBuf {
        let parent = match self.field(doc) {
            Some(field) => field
                .path
                .rsplit_once('.')
                .map(|(parent, _)| parent.to_owned()),
            None => None,
        };
        let inner = match &parent {
            Some(parent) => match doc.path(parent) {
                Some(Value::Document(inner)) => inner,
                _ => Doc::empty(),
            },
            None => doc,
        };
        let mut used = vec!["_id".to_owned()];
        let mut update = DocBuf::new();
        for operator in ["$inc", "$unset", "$set", "$rename"] {
            let share = [("$inc", 4), ("$unset", 3), ("$set", 3), ("$rename", 2)];
            let share = share.iter().find(|one| one.0 == operator).unwrap().1;
            if self.below(6) >= share {
                continue;
            }
            let mut fields = DocBuf::new();
            for _ in 0..1 + self.below(3) {
                let own = inner.iter_raw().nth(self.below(inner.count()));
                let mut name = match own {
                    Some(own) if self.one_in(3) => own.name().to_owned(),
                    _ => format!("h{}", self.below(4)),
                };
                let wants_number = operator == "$inc" && !self.one_in(30);
                if wants_number && inner.get(&name).is_some_and(|value| !value.is_number()) {
                    name = format!("i{}", self.below(4));
                }
                if used.contains(&name) || name.is_empty() || name.contains(['.', '$']) {
                    continue;
                }
                let path = |name: &str| match &parent {
                    Some(parent) => format!("{parent}.{name}"),
                    None => name.to_owned(),
                };
                let by = self.below(2_000_000_000) as i32 - 1_000_000_000;
                let value = match operator {
                    "$inc" => match self.below(6) {
                        0 => OwnedValue::Int64(i64::from(by) << self.below(34)),
                        1 | 2 => OwnedValue::Int64(i64::from(by % 100)),
                        3 => OwnedValue::Int32(by),
                        _ => OwnedValue::Int32(by % 100),
                    },
                    "$set" if self.one_in(3) => self.scalar(),
                    "$set" => self.number(),
                    "$rename" => {
                        let other = format!("h{}", self.below(4));
                        if used.contains(&other) || other == name {
                            continue;
                        }
                        used.push(other.clone());
                        path(&other).into()
                    }
                    _ => "".into(),
                };
                fields.push(&path(&name), &value);
                used.push(name);
            }
            if !fields.is_empty() {
                update.push(operator, &fields);
            }
        }
        update
    }

    fn replacement(&mut self, id: OwnedValue, shape: Shape) -> DocBuf {
        let bytes = self.size_around(shape.bytes);
        let whole = self.document(&id, bytes);
        if self.one_in(2) {
            return whole;
        }
        let mut out = DocBuf::new();
        for element in whole.iter_raw().filter(|element| element.name() != "_id") {
            out.push_raw(&element);
        }
        out
    }

    /// A condition on a field of a document: one that it meets, or almost meets.
    pub fn condition(&mut self, doc: &Doc, out: &mut DocBuf) {
        let Some(field) = self.field(doc) else { return };
        if out.contains_key(&field.path) {
            return;
        }
        let (path, value) = (&field.path, &field.value);
        let operator = self.pick(&["$gt", "$gte", "$lt", "$lte", "$ne"]);
        match self.below(12) {
            0..=3 => out.push(path, value),
            4 => out.push(path, &doc! {operator: value}),
            5 => out.push(path, &doc! {"$exists": !self.one_in(3)}),
            6 => out.push(path, &doc! {"$in": [value, self.scalar()]}),
            7 => out.push(path, &doc! {"$type": value.as_value().type_name()}),
            8 => out.push(path, &doc! {"$elemMatch": {"$gte": self.number()}}),
            9 => out.push(path, &doc! {"$size": self.below(4) as i32}),
            10 => {
                // The field that contains it, or the array that it is an element of.
                if let Some((front, _)) = path.rsplit_once('.')
                    && !out.contains_key(front)
                {
                    out.push(front, value);
                }
            }
            _ => out.push(path, &doc! {"$not": {operator: value}}),
        }
    }

    /// A filter for one document, or for some.
    pub fn filter(&mut self, docs: &Docs, shape: Shape) -> DocBuf {
        let mut out = DocBuf::new();
        let some = self.some_doc(docs);
        match some {
            Some(doc) if !self.one_in(12) => {
                if !self.one_in(5) {
                    out.push("_id", doc.get("_id").unwrap());
                }
                for _ in 0..self.below(3) {
                    self.condition(doc, &mut out);
                }
            }
            _ => out.push("_id", &self.id(shape.ids)),
        }
        out
    }

    pub fn some_doc<'a>(&mut self, docs: &'a Docs) -> Option<&'a DocBuf> {
        docs.values().nth(self.below(docs.len()))
    }

    pub fn projection(&mut self, doc: &Doc) -> DocBuf {
        let mut out = DocBuf::new();
        let kind = self.below(8);
        if kind == 0 {
            return out;
        }
        for _ in 0..1 + self.below(3) {
            let Some(field) = self.field(doc) else { break };
            let mut path = field.path;
            if out.contains_key(&path) {
                continue;
            }
            match kind {
                1..=3 => out.push(&path, 1),
                4 | 5 => out.push(&path, 0),
                6 => out.push(&path, &doc! {"$slice": self.below(6) as i32 - 3}),
                _ => match self.below(4) {
                    0 => {
                        path.push_str(".$");
                        out.push(&path, 1);
                    }
                    1 => out.push(&path, &doc! {"$elemMatch": {"$gte": self.number()}}),
                    2 => out.push("shown", &format!("${path}")),
                    _ => out.push(&path, 1),
                },
            }
        }
        if self.one_in(3) && !out.contains_key("_id") {
            out.push("_id", self.below(2) as i32);
        }
        out
    }

    pub fn sort(&mut self, doc: Option<&DocBuf>) -> DocBuf {
        let mut out = DocBuf::new();
        if let Some(field) = doc.and_then(|doc| self.field(doc))
            && self.one_in(2)
        {
            out.push(&field.path, [1, -1][self.below(2)]);
        }
        if !out.contains_key("_id") {
            out.push("_id", [1, -1][self.below(2)]);
        }
        out
    }

    fn update(&mut self, docs: &Docs, shape: Shape) -> UpdateOp {
        let filter = self.filter(docs, shape);
        // The update is made for the document that the filter names.
        let named = filter
            .get("_id")
            .map(|id| crate::large_documents::values::key_of(&id));
        let target = named.and_then(|key| docs.get(&key));
        let target = match target {
            Some(doc) => Some(doc),
            None => self.some_doc(docs),
        };
        let target = target.map_or(Doc::empty(), |doc| doc);
        let has_id = names_one(&filter);
        let mut array_filters = Vec::new();
        let update = match self.below(20) {
            0 if self.one_in(2) && !target.is_empty() => self.reordered(target).into(),
            0 => {
                let id = match filter.get("_id") {
                    Some(id) if !self.one_in(20) => id.into(),
                    _ => id_of(self.below(shape.ids)),
                };
                self.replacement(id, shape).into()
            }
            1 | 2 => self.pipeline(target),
            _ => {
                let (update, filters) = self.operators(target, shape.bytes);
                array_filters = filters;
                update.into()
            }
        };
        UpdateOp {
            multi: self.one_in(8),
            upsert: has_id && self.one_in(5),
            filter,
            update,
            array_filters,
        }
    }

    pub fn operation(&mut self, docs: &Docs, shape: Shape) -> Op {
        if let Some(doc) = self.some_doc(docs)
            && shape.hot
            && !self.one_in(50)
        {
            return Op::Update(UpdateOp {
                filter: doc! {"_id": doc.get("_id")},
                update: self.hot_update(doc).into(),
                array_filters: Vec::new(),
                multi: false,
                upsert: false,
            });
        }
        let few = docs.len() < shape.ids / 2;
        match self.below(if few { 30 } else { 100 }) {
            0..=9 => {
                let count = if self.one_in(4) { 5 } else { 1 };
                let document = |random: &mut Random| {
                    let bytes = random.size_around(shape.bytes);
                    let mut id = random.id(shape.ids);
                    for _ in 0..if random.one_in(5) { 0 } else { 5 } {
                        if docs
                            .contains_key(&crate::large_documents::values::key_of(&id.as_value()))
                        {
                            id = random.id(shape.ids);
                        }
                    }
                    let mut doc = random.document(&id, bytes);
                    if random.one_in(10) {
                        // It is stored in front, wherever a client puts it.
                        let mut moved = DocBuf::new();
                        for element in doc.iter_raw().skip(1) {
                            moved.push_raw(&element);
                        }
                        moved.push("_id", &id);
                        doc = moved;
                    }
                    doc
                };
                Op::Insert((0..count).map(|_| document(self)).collect())
            }
            10..=13 => Op::Delete {
                filter: self.filter(docs, shape),
                one: !self.one_in(8),
            },
            14..=20 => {
                let update = self.update(docs, shape);
                let target = self.some_doc(docs);
                Op::Modify {
                    filter: update.filter.clone(),
                    sort: self.sort(target),
                    new: self.one_in(2),
                    fields: target.map_or(DocBuf::new(), |doc| self.projection(doc)),
                    update: Some(UpdateOp {
                        multi: false,
                        ..update
                    }),
                }
            }
            21 => {
                let target = self.some_doc(docs);
                Op::Modify {
                    update: None,
                    sort: self.sort(target),
                    new: false,
                    fields: target.map_or(DocBuf::new(), |doc| self.projection(doc)),
                    filter: self.filter(docs, shape),
                }
            }
            _ => Op::Update(self.update(docs, shape)),
        }
    }
}
