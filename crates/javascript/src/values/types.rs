//! The types of BSON in an engine: what the prelude hands to the conversions.

use std::rc::Rc;

use rquickjs::{Ctx, Function, JsLifetime, Object, Result, Symbol, Value};

use super::names::Names;

/// The objects of an engine that conversions need. The engine keeps them.
#[derive(JsLifetime)]
pub struct Types<'js> {
    /// The name of the property that holds the type of a BSON value.
    pub kind: Symbol<'js>,
    /// The name of the property that holds its value.
    pub value: Symbol<'js>,
    make: Function<'js>,
    long: Function<'js>,
    pub min_key: Value<'js>,
    pub max_key: Value<'js>,
    pub reference: Function<'js>,
    well_formed: Function<'js>,
    pub fold: Function<'js>,
    date: rquickjs::function::Constructor<'js>,
    reg_exp: rquickjs::function::Constructor<'js>,
    date_value: Function<'js>,
    date_prototype: Value<'js>,
    pub reg_exp_prototype: Value<'js>,
    pub object_prototype: Object<'js>,
    /// The names of properties of documents.
    pub names: Names<'js>,
}

impl<'js> Types<'js> {
    /// Reads what the prelude returned.
    pub fn new(exports: &Object<'js>) -> Result<Types<'js>> {
        let date: Object = exports.get("date")?;
        let reg_exp: Object = exports.get("regExp")?;
        Ok(Types {
            kind: exports.get("type")?,
            value: exports.get("value")?,
            make: exports.get("make")?,
            long: exports.get("long")?,
            min_key: exports.get("minKey")?,
            max_key: exports.get("maxKey")?,
            reference: exports.get("reference")?,
            well_formed: exports.get("wellFormed")?,
            fold: exports.get("fold")?,
            date_prototype: date.get("prototype")?,
            reg_exp_prototype: reg_exp.get("prototype")?,
            date: exports.get("date")?,
            reg_exp: exports.get("regExp")?,
            date_value: exports.get("dateValue")?,
            object_prototype: exports.get("objectPrototype")?,
            names: Names::new(),
        })
    }

    /// The types of the engine that runs.
    pub fn get(ctx: &Ctx<'js>) -> Result<Rc<Types<'js>>> {
        ctx.userdata::<Rc<Types>>()
            .map(|types| Rc::clone(&types))
            .ok_or(rquickjs::Error::Unknown)
    }

    /// An object of a type, such as `ObjectId`.
    pub fn object(&self, name: &str, value: impl rquickjs::IntoJs<'js>) -> Result<Value<'js>> {
        self.make.call((name, value))
    }

    /// A `NumberLong`.
    pub fn number_long(&self, number: i64) -> Result<Value<'js>> {
        self.long.call((number.to_string(),))
    }

    /// A `Date`.
    pub fn new_date(&self, milliseconds: i64) -> Result<Value<'js>> {
        self.date.construct((milliseconds as f64,))
    }

    pub fn new_reg_exp(&self, pattern: &str, options: &str) -> Result<Value<'js>> {
        let flags: String = options.chars().filter(|c| "ims".contains(*c)).collect();
        self.reg_exp.construct((pattern, flags))
    }

    /// The milliseconds of a date. `None` if the object is not a date.
    pub fn milliseconds(&self, object: &Object<'js>) -> Result<Option<f64>> {
        if !has_prototype(object, &self.date_prototype) {
            return Ok(None);
        }
        self.date_value.call((object.clone(),)).map(Some)
    }

    /// Whether the object is a regular expression.
    pub fn is_reg_exp(&self, object: &Object<'js>) -> bool {
        has_prototype(object, &self.reg_exp_prototype)
    }

    /// The text of a string; a surrogate without its partner becomes U+FFFD. `None` if it has more bytes than `most`.
    pub fn text(&self, text: &rquickjs::String<'js>, most: usize) -> Result<Option<String>> {
        // The engine's own copy counts as its memory.
        if text.clone().to_cstring()?.len() > most {
            return Ok(None);
        }
        match text.to_string() {
            Err(rquickjs::Error::Utf8(_)) => self.well_formed.call((text.clone(),)).map(Some),
            other => other.map(Some),
        }
    }
}

/// Whether an object has this prototype. A proxy has none here: its handler could throw, and this version of `rquickjs` panics then.
fn has_prototype<'js>(object: &Object<'js>, prototype: &Value<'js>) -> bool {
    !object.is_proxy()
        && (object.get_prototype()).is_some_and(|found| found.as_value() == prototype)
}
