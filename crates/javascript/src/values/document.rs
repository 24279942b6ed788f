//! Documents whose fields are converted when they are read.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use frond_bson::{Doc, DocBuf, Value as Bson};
use rquickjs::class::{Class, Trace, Tracer};
use rquickjs::{Atom, JsLifetime, Object, Result, Value};

use super::names::name_of;
use super::types::Types;

/// Bytes that documents inside of them are read from later.
pub type Bytes = Rc<[u8]>;

/// A document of BSON as an object.
#[derive(JsLifetime)]
pub struct Document<'js> {
    pub(super) bytes: Bytes,
    start: usize,
    len: usize,
    /// Fields that were read and are objects, or all fields if `is_changed`. The order is that of the document.
    pub(super) fields: RefCell<Option<Object<'js>>>,
    /// Whether a field was set or deleted.
    pub(super) is_changed: Cell<bool>,
}

impl<'js> Trace<'js> for Document<'js> {
    fn trace<'a>(&self, tracer: Tracer<'a, 'js>) {
        if let Ok(fields) = self.fields.try_borrow()
            && let Some(fields) = &*fields
        {
            fields.trace(tracer);
        }
    }
}

impl<'js> Document<'js> {
    pub fn whole(bytes: Bytes) -> Document<'js> {
        let len = bytes.len();
        Document::part(bytes, 0, len)
    }

    /// A document that is a part of another one.
    pub fn part(bytes: Bytes, start: usize, len: usize) -> Document<'js> {
        Document {
            bytes,
            start,
            len,
            fields: RefCell::new(None),
            is_changed: Cell::new(false),
        }
    }

    /// As an object of the engine.
    pub fn object(self, types: &Types<'js>) -> Result<Class<'js, Document<'js>>> {
        Class::instance_proto(self, types.object_prototype.clone())
    }

    /// The document as it was read.
    pub fn doc(&self) -> &Doc {
        let end = self.start.saturating_add(self.len);
        Doc::from_trusted(self.bytes.get(self.start..end).unwrap_or_default())
    }

    /// Calls `write` with each field as it is now: one that cannot have changed as it was read, others with the value
    /// that they have.
    pub fn each<E>(
        &self,
        mut write: impl FnMut(Field<'_, 'js>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E>
    where
        E: From<rquickjs::Error>,
    {
        let fields = self.fields.borrow().clone();
        let Some(fields) = fields else {
            return write(Field::All(self.doc()));
        };
        if self.is_changed.get() {
            for property in fields
                .own_props::<Atom, Value>(rquickjs::object::Filter::new().string().enum_only())
            {
                let (name, value) = property?;
                let Some(name) = name_of(&name)? else {
                    continue;
                };
                let before = self.doc().get(&name);
                write(Field::Now(&name, value, before))?;
            }
            return Ok(());
        }
        for element in self.doc().iter_raw() {
            let name = element.name();
            let is_object = matches!(
                element.value(),
                Some(Bson::Document(_) | Bson::Array(_) | Bson::DateTime(_))
            );
            if is_object && fields.contains_key(name)? {
                write(Field::Now(name, fields.get(name)?, element.value()))?
            } else {
                write(Field::Read(element))?
            }
        }
        Ok(())
    }
}

/// A field of a document.
pub enum Field<'a, 'js> {
    /// Not one, but all: nothing has changed.
    All(&'a Doc),
    /// As it was read.
    Read(frond_bson::RawElement<'a>),
    /// Its value now, and the one that was read.
    Now(&'a str, Value<'js>, Option<Bson<'a>>),
}

/// The document behind an object that was not changed, as bytes. `None` for other objects.
pub fn unchanged(object: &Object<'_>) -> Option<DocBuf> {
    let document = Class::<Document>::from_object(object)?;
    let document = document.borrow();
    let is_read = document.fields.borrow().is_none();
    is_read.then(|| document.doc().to_owned())
}
