//! Random pipelines over random documents, and over others that have only the fields they need.

use super::random::{Random, outcome, text};
use super::*;
use crate::aggregate::{Docs, ExecContext, Pipeline};
use frond_error::Error;

impl Random {
    fn accumulator(&mut self) -> String {
        let input = self.expression(1);
        match self.below(8) {
            0 => format!("{{$top: {{sortBy: {}, output: {input}}}}}", self.sort()),
            1 => "{$count: {}}".to_owned(),
            _ => {
                let name = self.pick(&["$sum", "$push", "$first", "$max", "$addToSet", "$avg"]);
                format!("{{{name}: {input}}}")
            }
        }
    }

    fn stage(&mut self) -> String {
        let (path, other) = (self.path(), self.path());
        match self.below(18) {
            0 => format!("{{$match: {}}}", self.filter(1)),
            1 => format!("{{$sort: {}}}", self.sort()),
            2 => format!(
                "{{{}: {}}}",
                self.pick(&["$limit", "$skip"]),
                self.below(3) + 1
            ),
            3 => format!("{{$unwind: '${path}'}}"),
            4 => format!(
                "{{$unwind: {{path: '${path}', includeArrayIndex: '{other}', \
                 preserveNullAndEmptyArrays: {}}}}}",
                self.pick(&["true", "false"])
            ),
            5 | 6 => format!(
                "{{$group: {{_id: {}, x: {}, y: {}}}}}",
                self.expression(1),
                self.accumulator(),
                self.accumulator()
            ),
            7 => format!("{{$sortByCount: {}}}", self.field()),
            8 => "{$count: 'a'}".to_owned(),
            9 | 10 => format!("{{$project: {{'{path}': 1, '{other}': {}}}}}", self.field()),
            11 => format!("{{$project: {{'{path}': 0}}}}"),
            12 | 13 => format!("{{$set: {{'{path}': {}}}}}", self.expression(1)),
            14 => format!("{{$replaceWith: {{a: {}}}}}", self.expression(1)),
            15 => format!(
                "{{$bucketAuto: {{groupBy: '${path}', buckets: 2, output: {{x: {}}}}}}}",
                self.accumulator()
            ),
            16 => format!(
                "{{$setWindowFields: {{partitionBy: '${path}', sortBy: {}, output: \
                 {{'{other}': {}}}}}}}",
                self.sort(),
                self.accumulator()
            ),
            _ => format!(
                "{{$fill: {{partitionByFields: ['{path}'], sortBy: {}, output: \
                 {{'{other}': {{method: 'locf'}}}}}}}}",
                self.sort()
            ),
        }
    }

    fn stages(&mut self) -> String {
        let stages: Vec<_> = (0..=self.below(4)).map(|_| self.stage()).collect();
        format!("[{}]", stages.join(", "))
    }
}

fn run(pipeline: &Pipeline, docs: &[DocBuf]) -> Result<Vec<String>> {
    let mut source = pipeline
        .clone()
        .execute::<Error>(Box::new(Docs::new(docs.to_vec())), &ExecContext::new(7))?;
    let mut found = Vec::new();
    while let Some(doc) = source.next()? {
        found.push(text(&doc));
    }
    Ok(found)
}

#[test]
fn pipelines_see_what_they_need() {
    let mut random = Random::seeded(6);
    let (mut partial, mut fruitful) = (0, 0);
    for _ in 0..6000 {
        let source = random.stages();
        let stages = value(&source);
        let Value::Array(stages) = stages.as_value() else {
            panic!("{source}");
        };
        let Ok(pipeline) = Pipeline::parse(stages, &environment()) else {
            continue;
        };
        let (_, pipeline) = pipeline.split_front();
        let Some(needed) = pipeline.needed_fields() else {
            continue;
        };
        let required: RequiredFields = needed.iter().map(String::as_str).collect();
        let docs: Vec<DocBuf> = (0..3)
            .map(|id| json(&random.document(3, &format!("_id: {id}"))))
            .collect();
        let others: Vec<DocBuf> = (docs.iter())
            .map(|doc| match random.below(2) {
                0 => required.part_of(doc),
                _ => random.scramble(doc, &required, ""),
            })
            .collect();
        partial += usize::from(docs != others);
        let result = outcome(run(&pipeline, &docs));
        let shown: Vec<_> = docs.iter().chain(&others).map(|doc| text(doc)).collect();
        assert_eq!(
            outcome(run(&pipeline, &others)),
            result,
            "{source} needs {} of {}",
            show(&required),
            shown.join("\n")
        );
        fruitful += usize::from(result.is_ok_and(|found| !found.is_empty()));
    }
    assert!(partial > 500 && fruitful > 500, "{partial} {fruitful}");
}
