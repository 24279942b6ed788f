//! The names of properties, as the fields of documents have them.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use rquickjs::{Atom, JsLifetime, Result};

/// Names that are kept: a power of two.
const SLOTS: usize = 64;

/// Longer names are not kept: their memory is outside of the engine's limit.
const BYTES_MAX: usize = 256;

/// The names of properties that were read lately. The engine has a number for each name, and must copy the text to return it.
#[derive(JsLifetime)]
pub struct Names<'js> {
    slots: RefCell<Vec<Option<Name<'js>>>>,
}

#[derive(JsLifetime)]
struct Name<'js> {
    atom: Atom<'js>,
    text: Rc<String>,
}

/// Keeps the number that an atom hashes.
#[derive(Default)]
struct Number(u32);

impl Hasher for Number {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = self.0.rotate_left(8) ^ number;
    }

    fn finish(&self) -> u64 {
        u64::from(self.0)
    }
}

impl<'js> Names<'js> {
    pub fn new() -> Names<'js> {
        let mut slots = Vec::new();
        slots.resize_with(SLOTS, || None);
        Names {
            slots: RefCell::new(slots),
        }
    }

    /// The name of a property. `None` if no field can have it.
    pub fn get(&self, atom: &Atom<'js>) -> Result<Option<Rc<String>>> {
        let mut number = Number::default();
        atom.hash(&mut number);
        let place = number.0 as usize % SLOTS;
        if let Some(Some(known)) = self.slots.borrow().get(place)
            && known.atom == *atom
        {
            return Ok(Some(known.text.clone()));
        }
        let Some(text) = name_of(atom)? else {
            return Ok(None);
        };
        let text = Rc::new(text);
        if text.len() > BYTES_MAX {
            return Ok(Some(text));
        }
        let name = Name {
            atom: atom.clone(),
            text: text.clone(),
        };
        let before = match self.slots.borrow_mut().get_mut(place) {
            Some(slot) => slot.replace(name),
            None => None,
        };
        drop(before);
        Ok(Some(text))
    }
}

/// The name that a property of a document has.
pub fn name_of(atom: &Atom<'_>) -> Result<Option<String>> {
    // A name with half a surrogate pair is none of a document. Symbols have the names of their descriptions: those of the prelude
    // have a zero in it, which no field has.
    match atom.to_js_string()?.to_string() {
        Ok(name) => Ok(Some(name)),
        Err(rquickjs::Error::Utf8(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
