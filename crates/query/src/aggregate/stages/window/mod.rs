//! `$setWindowFields`: fields that are computed over the documents around each document.
//!
//! [`bounds`] says which documents those are, [`function`] what is computed, [`sliding`] holds the
//! states that documents can also leave again, [`run`] walks through the partitions.

mod bounds;
pub(crate) mod function;
mod run;
mod sliding;

pub(crate) use run::open;

use crate::aggregate::ParseContext;
use crate::aggregate::add_fields::AddFields;
use crate::aggregate::stages::Stage;
use crate::expr::{FieldPath, Node, Parser, field_path};
use crate::meta::MetaFields;
use crate::options::{Options, Type};
use crate::sort::SortSpec;
use bounds::Bounds;
use frond_bson::{Collator, Doc, Value};
use frond_error::{Error, Result};
use function::Function;
use std::sync::Arc;

/// `{$setWindowFields: {partitionBy: .., sortBy: {..}, output: {..}}}`.
#[derive(Debug)]
pub(crate) struct SetWindowFields {
    partition: Option<Node>,
    /// Partitions that are equal so are one.
    collator: Collator,
    order: Option<Order>,
    outputs: Vec<Output>,
    /// Puts the results, which are its variables, into documents.
    fields: AddFields,
}

/// The order of the documents of a partition.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) sort: SortSpec,
    /// The field, if it is only one.
    pub(super) only: Option<FieldPath>,
    pub(super) ascending: bool,
}

#[derive(Debug)]
struct Output {
    function: Function,
    bounds: Bounds,
}

impl SetWindowFields {
    /// The metadata that the stage asks for.
    pub(crate) fn meta(&self) -> MetaFields {
        let inputs = self
            .outputs
            .iter()
            .filter_map(|output| output.function.input());
        (self.partition.iter().chain(inputs))
            .fold(MetaFields::default(), |found, node| found | node.meta())
    }

    /// Calls `found` with the paths that the stage reads.
    pub(crate) fn reads(&self, found: &mut dyn FnMut(String)) {
        if let Some(node) = &self.partition {
            node.fields(&mut |path| found(path.dotted()));
        }
        if let Some(order) = &self.order {
            for (path, _) in order.sort.fields() {
                found(path.as_str().to_owned());
            }
        }
        for output in &self.outputs {
            output.function.reads(found);
        }
        self.fields.reads(found);
    }
}

pub(crate) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::failed_to_parse(format!(
            "the $setWindowFields stage specification must be an object, found {}",
            argument.type_name()
        )));
    };
    let options = Options::new("$setWindowFields", spec);
    options.only(&["partitionBy", "sortBy", "output"])?;
    let fields = options.required("output", Type::Object)?;
    let mut parser = Parser::new(&context.environment);
    let partition = match spec.get("partitionBy") {
        Some(by) => Some(parser.parse(by)?),
        None => None,
    };
    if let Some(Node::Array(_)) = partition {
        return Err(partition_is_array());
    }
    let order = match options.optional("sortBy", Type::Object)? {
        Some(Value::Document(sort)) if !sort.is_empty() => {
            Some(Order::parse(sort, context.environment.collator)?)
        }
        _ => None,
    };
    let mut outputs = Vec::new();
    let mut tree = AddFields::default();
    for (name, value) in fields.as_doc().unwrap_or(Doc::empty()).iter() {
        crate::paths::check_field_path(name)?;
        let Value::Document(spec) = value else {
            return Err(Error::failed_to_parse(format!(
                "The field '{name}' must be an object"
            )));
        };
        let number = u32::try_from(outputs.len()).unwrap_or(u32::MAX);
        tree.insert(name, name, Node::Variable(number, FieldPath::default()))
            .map_err(|_| {
                Error::location(
                    6307900,
                    "$setWindowFields 'output' specification contains two conflicting paths",
                )
            })?;
        let (function, bounds) = function::parse(&mut parser, spec, order.as_ref())?;
        outputs.push(Output { function, bounds });
    }
    out.push(Stage::SetWindowFields(Arc::new(SetWindowFields {
        partition,
        collator: context.environment.collator.clone(),
        order,
        outputs,
        fields: tree,
    })));
    Ok(())
}

/// Error 14 for a partition that is an array.
fn partition_is_array() -> Error {
    Error::type_mismatch("An expression used to partition cannot evaluate to value of type array")
}

impl Order {
    fn parse(spec: &Doc, collator: &Collator) -> Result<Order> {
        let sort = SortSpec::parse(spec)?.collated(collator);
        let mut fields = sort.fields();
        let (only, ascending) = match (fields.next(), fields.next()) {
            (Some((path, direction)), None) => (
                Some(field_path(path.as_str(), path.as_str())?),
                direction == frond_bson::key::Direction::Ascending,
            ),
            _ => (None, false),
        };
        drop(fields);
        Ok(Order {
            sort,
            only,
            ascending,
        })
    }
}
