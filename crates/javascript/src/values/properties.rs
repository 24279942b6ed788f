//! The properties of a document, which convert fields when the engine reads or changes them.

use frond_bson::Value as Bson;
use rquickjs::class::{ClassKind, JsCell, JsClass, PropertyDescriptor, PropertyName, Readable};
use rquickjs::function::Constructor;
use rquickjs::{Atom, Ctx, Object, Result, Value};

use super::document::Document;
use super::names::name_of;
use super::read;
use super::types::Types;

impl<'js> Document<'js> {
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
