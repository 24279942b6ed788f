//! Documents whose fields are converted when they are read.

use std::cell::{Cell, RefCell};

use frond_bson::{Doc, DocBuf, Value as Bson};
use rquickjs::class::{
    Class, ClassKind, JsCell, JsClass, PropertyDescriptor, PropertyName, Readable, Trace, Tracer,
};
use rquickjs::function::Constructor;
use rquickjs::{Atom, Ctx, JsLifetime, Object, Result, Value};

use super::names::name_of;
use super::read::{self, Bytes};
use super::types::Types;

/// A document of BSON as an object.
#[derive(JsLifetime)]
pub struct Document<'js> {
    bytes: Bytes,
    start: usize,
    len: usize,
    /// Fields that were read and are objects, or all fields if `is_changed`. The order is that of the document.
    fields: RefCell<Option<Object<'js>>>,
    /// Whether a field was set or deleted.
    is_changed: Cell<bool>,
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

    /// A field; `None` if there is none.
    fn field(&self, ctx: &Ctx<'js>, atom: &Atom<'js>, name: &str) -> Result<Option<Value<'js>>> {
        if self.is_changed.get() {
            let fields = self.fields.borrow().clone();
            return match fields {
                Some(fields) if fields.contains_key(atom.clone())? => {
                    fields.get(atom.clone()).map(Some)
                }
                _ => Ok(None),
            };
        }
        let Some(field) = self.doc().get(name) else {
            return Ok(None);
        };
        let is_scalar = matches!(
            field,
            Bson::Double(_)
                | Bson::Int32(_)
                | Bson::String(_)
                | Bson::Bool(_)
                | Bson::Null
                | Bson::Undefined
                | Bson::Symbol(_)
        );
        if is_scalar {
            return read::value(ctx, field, &self.bytes, None).map(Some);
        }
        // Reading it again gives the same object.
        let fields = self.fields.borrow().clone();
        let fields = match fields {
            Some(fields) => fields,
            None => {
                let fields = Object::new_proto(ctx.clone(), None)?;
                *self.fields.borrow_mut() = Some(fields.clone());
                fields
            }
        };
        if fields.contains_key(atom.clone())? {
            return fields.get(atom.clone()).map(Some);
        }
        let value = read::value(ctx, field, &self.bytes, None)?;
        fields.set(atom.clone(), value.clone())?;
        Ok(Some(value))
    }

    /// Converts all fields, because one of them changes.
    fn change(&self, ctx: &Ctx<'js>) -> Result<Object<'js>> {
        let before = self.fields.borrow().clone();
        if self.is_changed.get()
            && let Some(fields) = before
        {
            return Ok(fields);
        }
        let types = Types::get(ctx)?;
        let fields = Object::new_proto(ctx.clone(), None)?;
        for (name, field) in self.doc().iter() {
            let known = match &before {
                Some(before) if before.contains_key(name)? => Some(before.get(name)?),
                _ => None,
            };
            let value: Value = match known {
                Some(value) => value,
                None => read::value(ctx, field, &self.bytes, Some(&types))?,
            };
            fields.set(name, value)?;
        }
        *self.fields.borrow_mut() = Some(fields.clone());
        self.is_changed.set(true);
        Ok(fields)
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

impl<'js> JsClass<'js> for Document<'js> {
    const NAME: &'static str = "Object";
    const KIND: ClassKind = ClassKind::Exotic;
    type Mutable = Readable;

    fn constructor(_: &Ctx<'js>) -> Result<Option<Constructor<'js>>> {
        Ok(None)
    }

    fn exotic_get_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
        _receiver: Value<'js>,
    ) -> Result<Value<'js>> {
        let document = this.borrow();
        let types = Types::get(ctx)?;
        if let Some(name) = types.names.get(&atom)?
            && let Some(value) = document.field(ctx, &atom, &name)?
        {
            return Ok(value);
        }
        types.object_prototype.get(atom)
    }

    fn exotic_set_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
        _receiver: Value<'js>,
        value: Value<'js>,
    ) -> Result<bool> {
        // This version of `rquickjs` takes a reference to the value that it was only lent, and drops it.
        std::mem::forget(value.clone());
        this.borrow().change(ctx)?.set(atom, value)?;
        Ok(true)
    }

    fn exotic_delete_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
    ) -> Result<bool> {
        this.borrow().change(ctx)?.remove(atom)?;
        Ok(true)
    }

    fn exotic_has_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
    ) -> Result<bool> {
        let document = this.borrow();
        let types = Types::get(ctx)?;
        if let Some(name) = types.names.get(&atom)?
            && document.field(ctx, &atom, &name)?.is_some()
        {
            return Ok(true);
        }
        types.object_prototype.contains_key(atom)
    }

    fn exotic_get_own_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
    ) -> Result<Option<PropertyDescriptor<'js>>> {
        let document = this.borrow();
        let Some(name) = name_of(&atom)? else {
            return Ok(None);
        };
        let value = document.field(ctx, &atom, &name)?;
        Ok(value.map(|value| PropertyDescriptor::new_value(value, true, true, true)))
    }

    fn exotic_get_own_property_names(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
    ) -> Result<Vec<PropertyName<'js>>> {
        let document = this.borrow();
        let named = |atom| PropertyName {
            atom,
            is_enumerable: true,
        };
        let mut names = Vec::new();
        if document.is_changed.get()
            && let Some(fields) = &*document.fields.borrow()
        {
            for name in fields.keys::<Atom>() {
                names.push(named(name?));
            }
            return Ok(names);
        }
        for (name, _) in document.doc().iter() {
            names.push(named(Atom::from_str(ctx.clone(), name)?));
        }
        Ok(names)
    }
}

/// The document behind an object that was not changed, as bytes. `None` for other objects.
pub fn unchanged(object: &Object<'_>) -> Option<DocBuf> {
    let document = Class::<Document>::from_object(object)?;
    let document = document.borrow();
    let is_read = document.fields.borrow().is_none();
    is_read.then(|| document.doc().to_owned())
}
