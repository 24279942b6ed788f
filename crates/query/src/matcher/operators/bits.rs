//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet` and `$bitsAnyClear`.

use frond_bson::Value;

use super::super::parse::Field;
use super::super::{Expr, Op};
use super::integer;
use frond_error::{Error, Result};

/// Condition on the bits at the positions of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitTestKind {
    /// All are 1.
    AllSet,
    /// All are 0.
    AllClear,
    /// At least one is 1.
    AnySet,
    /// At least one is 0.
    AnyClear,
}

/// A test of the bits of integers and of binary data. Bit 0 is the least significant one.
#[derive(Clone, Debug)]
pub struct BitTest {
    kind: BitTestKind,
    positions: Box<[u32]>,
}

impl BitTest {
    pub fn kind(&self) -> BitTestKind {
        self.kind
    }

    /// The positions of the bits tested.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Numbers that are no 64-bit integers do not match. An integer extends by its sign, binary data
    /// by zeros.
    pub(crate) fn matches(&self, value: Option<Value<'_>>) -> bool {
        match value {
            Some(Value::Binary { bytes, .. }) => self.holds(|position| {
                let byte = bytes.get(position as usize / 8).copied().unwrap_or(0);
                byte >> (position % 8) & 1 == 1
            }),
            Some(value) => match value.as_i64_lossless() {
                Some(number) => self.holds(|position| number >> position.min(63) & 1 == 1),
                None => false,
            },
            None => false,
        }
    }

    fn holds(&self, is_set: impl Fn(u32) -> bool) -> bool {
        let mut positions = self.positions.iter().copied();
        match self.kind {
            BitTestKind::AllSet => positions.all(is_set),
            BitTestKind::AllClear => !positions.any(is_set),
            BitTestKind::AnySet => positions.any(is_set),
            BitTestKind::AnyClear => !positions.all(is_set),
        }
    }
}

fn parse(
    field: &Field<'_>,
    name: &str,
    kind: BitTestKind,
    argument: Value<'_>,
) -> Result<Option<Expr>> {
    let positions = match argument {
        Value::Array(items) => items
            .iter()
            .map(|(index, item)| {
                integer::non_negative_i32(index, &item).map_err(|reason| {
                    Error::bad_value(format!("Failed to parse bit position. {reason}"))
                })
            })
            .collect::<Result<Box<[u32]>>>()?,
        Value::Binary { bytes, .. } => mask_positions(bytes),
        argument if argument.is_number() => {
            let mask = integer::non_negative(name, &argument).map_err(Error::failed_to_parse)?;
            mask_positions(&mask.to_le_bytes())
        }
        argument => {
            return Err(Error::bad_value(format!(
                "{name} takes an Array, a number, or a BinData but received: {}",
                crate::display::element(name, &argument)
            )));
        }
    };
    Ok(Some(field.leaf(Op::Bits(BitTest { kind, positions }))))
}

/// The positions of the bits that are set.
fn mask_positions(mask: &[u8]) -> Box<[u32]> {
    (0u32..)
        .zip(mask)
        .flat_map(|(index, byte)| (0..8).map(move |bit| (index * 8 + bit, byte >> bit & 1 == 1)))
        .filter_map(|(position, set)| set.then_some(position))
        .collect()
}

pub(crate) fn parse_all_set(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    parse(field, "$bitsAllSet", BitTestKind::AllSet, argument)
}

pub(crate) fn parse_all_clear(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    parse(field, "$bitsAllClear", BitTestKind::AllClear, argument)
}

pub(crate) fn parse_any_set(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    parse(field, "$bitsAnySet", BitTestKind::AnySet, argument)
}

pub(crate) fn parse_any_clear(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    parse(field, "$bitsAnyClear", BitTestKind::AnyClear, argument)
}
