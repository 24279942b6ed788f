//! Compressed columns: binary of subtype 7, which has the values of one field in the order of the measurements.
//!
//! A column is a row of parts, each behind a control byte, and ends with a zero byte. A literal is an element of BSON
//! without a name. A byte of 0x80 to 0xDF begins up to 16 words of integers, differences to the value before (see
//! `state`). A byte of 0xF0 to 0xF2 begins a row of documents or arrays: a document names all their fields, then come
//! the parts of all fields, each when the field has no integers left.

use super::error::ColumnFault;
use super::state::{Element, State};
use crate::raw::RawElement;
use crate::{Doc, tag};

/// Objects whose arrays are values, objects whose arrays are divided as objects are, and arrays.
const OBJECTS_OLD: u8 = 0xF0;
const OBJECTS: u8 = 0xF1;
const ARRAYS: u8 = 0xF2;

/// A value of a column; `None` if the measurement has none.
pub type Cell<'c> = Option<Element<'c>>;

/// The values of a column, one after the other.
#[derive(Debug)]
pub struct Column<'a> {
    input: Input<'a>,
    state: State<'a>,
    objects: Option<Objects<'a>>,
    /// Fields of its objects at most.
    fields_max: usize,
}

#[derive(Debug)]
struct Input<'a> {
    rest: &'a [u8],
}

/// A row of documents or arrays.
#[derive(Debug)]
struct Objects<'a> {
    tag: u8,
    layout: Vec<Place<'a>>,
    states: Vec<State<'a>>,
    /// The object that was read last.
    object: Vec<u8>,
    /// Beginnings of the objects in `object` that are not closed yet.
    open: Vec<usize>,
}

/// A part of the layout of objects.
#[derive(Debug)]
enum Place<'a> {
    Open {
        tag: u8,
        /// The outermost object has no name.
        name: Option<&'a [u8]>,
    },
    Value {
        name: &'a [u8],
    },
    Close {
        /// The object is there even if it has no fields.
        is_empty: bool,
    },
}

impl<'a> Column<'a> {
    pub fn new(bytes: &'a [u8], fields_max: usize) -> Column<'a> {
        Column {
            input: Input { rest: bytes },
            state: State::default(),
            objects: None,
            fields_max,
        }
    }

    /// The next value; none at the end.
    pub fn next(&mut self) -> Result<Option<Cell<'_>>, ColumnFault> {
        loop {
            if let Some(objects) = &mut self.objects {
                if objects.read(&mut self.input)? {
                    // Borrowed again, as the borrow above would outlive the loop.
                    let objects = self.objects.as_ref();
                    return Ok(Some(objects.and_then(Objects::element)));
                }
                self.state = match objects.element() {
                    Some((tag, value)) => State::repeating(tag, value),
                    None => State::default(),
                };
                self.objects = None;
            }
            if self.state.has_deltas() {
                return self.state.delta().map(Some);
            }
            match self.input.control()? {
                0 if self.input.rest.len() == 1 => return Ok(None),
                0 => return Err(ColumnFault::Trailing),
                control @ (OBJECTS_OLD | OBJECTS | ARRAYS) => self.begin_objects(control)?,
                control => {
                    if self.input.part(control, &mut self.state)? {
                        return Ok(Some(self.state.value()));
                    }
                }
            }
        }
    }

    fn begin_objects(&mut self, control: u8) -> Result<(), ColumnFault> {
        let behind = self.input.rest.get(1..).unwrap_or_default();
        let (reference, rest) = Doc::from_prefix(behind).map_err(|_| ColumnFault::Reference)?;
        let mut objects = Objects {
            tag: if control == ARRAYS {
                tag::ARRAY
            } else {
                tag::DOCUMENT
            },
            layout: Vec::new(),
            states: Vec::new(),
            object: Vec::new(),
            open: Vec::new(),
        };
        objects.lay_out(None, reference, control != OBJECTS_OLD, self.fields_max)?;
        if objects.states.is_empty() || rest.first().is_none_or(|control| *control == 0) {
            return Err(ColumnFault::Reference);
        }
        self.input.rest = rest;
        self.objects = Some(objects);
        Ok(())
    }
}

impl<'a> Input<'a> {
    fn control(&self) -> Result<u8, ColumnFault> {
        self.rest.first().copied().ok_or(ColumnFault::Truncated)
    }

    /// Makes a literal the value of the state, or leaves the words behind a control byte in it. Returns whether it was
    /// a literal.
    fn part(&mut self, control: u8, state: &mut State<'a>) -> Result<bool, ColumnFault> {
        if control & 0xE0 == 0 || matches!(control, tag::MIN_KEY | tag::MAX_KEY) {
            if tag::type_name_of_code(control).is_none() {
                return Err(ColumnFault::Control(control));
            }
            let (element, rest) = RawElement::split(self.rest).ok_or(ColumnFault::Truncated)?;
            if !element.name_bytes().is_empty() {
                return Err(ColumnFault::Control(control));
            }
            self.rest = rest;
            state.load(element.tag(), element.value_bytes())?;
            return Ok(true);
        }
        let bytes = (usize::from(control & 15) + 1) * size_of::<u64>();
        let words = self.rest.get(1..=bytes).ok_or(ColumnFault::Truncated)?;
        state.begin_deltas(control, words)?;
        self.rest = self.rest.get(1 + bytes..).unwrap_or_default();
        Ok(false)
    }
}

impl<'a> Objects<'a> {
    /// Adds the places of an object, whose depth is limited by the validation of the document.
    fn lay_out(
        &mut self,
        outside: Option<&RawElement<'a>>,
        object: &'a Doc,
        divides_arrays: bool,
        fields_max: usize,
    ) -> Result<(), ColumnFault> {
        self.layout.push(Place::Open {
            tag: outside.map_or(self.tag, RawElement::tag),
            name: outside.map(RawElement::name_bytes),
        });
        for element in object.iter_raw() {
            if self.layout.len() >= fields_max {
                return Err(ColumnFault::Fields);
            }
            let is_divided =
                element.tag() == tag::DOCUMENT || (divides_arrays && element.tag() == tag::ARRAY);
            if is_divided {
                let inner = Doc::from_trusted(element.value_bytes());
                self.lay_out(Some(&element), inner, divides_arrays, fields_max)?;
            } else {
                let mut state = State::default();
                state.load(element.tag(), element.value_bytes())?;
                self.states.push(state);
                self.layout.push(Place::Value {
                    name: element.name_bytes(),
                });
            }
        }
        self.layout.push(Place::Close {
            is_empty: object.is_empty(),
        });
        Ok(())
    }

    /// Reads an object. Returns whether there is one: otherwise the row ends, and the last object is kept.
    fn read(&mut self, input: &mut Input<'a>) -> Result<bool, ColumnFault> {
        let is_at_end =
            self.states.first().is_some_and(|state| !state.has_deltas()) && input.control()? == 0;
        if is_at_end {
            if self.states.iter().any(State::has_deltas) {
                return Err(ColumnFault::Objects);
            }
            input.rest = input.rest.get(1..).unwrap_or_default();
            return Ok(false);
        }
        self.object.clear();
        self.open.clear();
        let mut states = self.states.iter_mut();
        for place in &self.layout {
            match place {
                Place::Open { tag, name } => {
                    self.open.push(self.object.len());
                    if let Some(name) = name {
                        write_head(&mut self.object, *tag, name);
                    }
                    self.object.extend_from_slice(&[0; 4]);
                }
                Place::Value { name } => {
                    let Some(state) = states.next() else {
                        continue;
                    };
                    let mut is_literal = false;
                    if !state.has_deltas() {
                        let control = input.control()?;
                        if control == 0 {
                            return Err(ColumnFault::Objects);
                        }
                        is_literal = input.part(control, state)?;
                    }
                    let cell = if is_literal {
                        state.value()
                    } else {
                        state.delta()?
                    };
                    if let Some((tag, value)) = cell {
                        write_head(&mut self.object, tag, name);
                        self.object.extend_from_slice(value);
                    }
                }
                Place::Close { is_empty } => close(&mut self.object, &mut self.open, *is_empty),
            }
        }
        Ok(true)
    }

    fn element(&self) -> Cell<'_> {
        (!self.object.is_empty()).then_some((self.tag, &self.object))
    }
}

fn write_head(object: &mut Vec<u8>, tag: u8, name: &[u8]) {
    object.push(tag);
    object.extend_from_slice(name);
    object.push(0);
}

/// Ends the innermost open object, or takes it back if it has no fields and had some in the reference.
fn close(object: &mut Vec<u8>, open: &mut Vec<usize>, may_be_empty: bool) {
    let Some(start) = open.pop() else {
        return;
    };
    // The outermost object has no head.
    let head = if open.is_empty() {
        0
    } else {
        let name = object.get(start + 1..).unwrap_or_default();
        2 + name.iter().position(|byte| *byte == 0).unwrap_or(0)
    };
    let prefix = start + head;
    if !may_be_empty && object.len() == prefix + 4 {
        object.truncate(start);
        return;
    }
    object.push(0);
    let len = ((object.len() - prefix) as u32).to_le_bytes();
    if let Some(place) = object.get_mut(prefix..prefix + 4) {
        place.copy_from_slice(&len);
    }
}
