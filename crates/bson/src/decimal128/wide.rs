//! Integers of a fixed number of 64-bit limbs, least significant first: just the operations that decimals
//! need, on the stack.

use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wide<const N: usize>(pub [u64; N]);

impl<const N: usize> Wide<N> {
    pub(super) fn new(n: u128) -> Self {
        let mut limbs = [0; N];
        for (limb, part) in limbs.iter_mut().zip([n as u64, (n >> 64) as u64]) {
            *limb = part;
        }
        Self(limbs)
    }

    /// The number if 128 bits hold it.
    pub(super) fn to_u128(self) -> Option<u128> {
        let (low, high) = self.0.split_at_checked(2)?;
        let fits = high.iter().all(|&limb| limb == 0);
        let n = low
            .iter()
            .rev()
            .fold(0, |n, &limb| (n << 64) | u128::from(limb));
        fits.then_some(n)
    }

    pub(super) fn multiply(&mut self, factor: u64) {
        let mut carry = 0u128;
        for limb in &mut self.0 {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        debug_assert_eq!(carry, 0);
    }

    /// Multiplies by `base^power`, where `base^step` must fit 64 bits.
    fn multiply_by_power(&mut self, base: u64, step: u32, mut power: u32) {
        while power >= step {
            self.multiply(base.pow(step));
            power -= step;
        }
        self.multiply(base.pow(power));
    }

    pub(super) fn multiply_by_power_of_five(&mut self, power: u32) {
        self.multiply_by_power(5, 27, power);
    }

    pub(super) fn multiply_by_power_of_ten(&mut self, power: u32) {
        self.multiply_by_power(10, 19, power);
    }

    /// Divides in place and returns the remainder.
    pub(super) fn divide(&mut self, divisor: u64) -> u64 {
        let mut rest = 0u128;
        for limb in self.0.iter_mut().rev() {
            let part = (rest << 64) | u128::from(*limb);
            *limb = (part / u128::from(divisor)) as u64;
            rest = part % u128::from(divisor);
        }
        rest as u64
    }

    /// Divides in place, bit by bit, and returns the remainder. The divisor must be below 2^127.
    pub(super) fn divide_wide(&mut self, divisor: u128) -> u128 {
        let mut rest = 0u128;
        for limb in self.0.iter_mut().rev() {
            let mut quotient = 0u64;
            for bit in (0..64).rev() {
                rest = (rest << 1) | u128::from((*limb >> bit) & 1);
                quotient <<= 1;
                if rest >= divisor {
                    rest -= divisor;
                    quotient |= 1;
                }
            }
            *limb = quotient;
        }
        rest
    }

    pub(super) fn add(&mut self, other: &Self) {
        let mut carry = false;
        for (a, b) in self.0.iter_mut().zip(other.0) {
            (*a, carry) = a.carrying_add(b, carry);
        }
        debug_assert!(!carry);
    }

    /// Subtracts what must not be greater.
    pub(super) fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (a, b) in self.0.iter_mut().zip(other.0) {
            (*a, borrow) = a.borrowing_sub(b, borrow);
        }
        debug_assert!(!borrow);
    }

    pub(super) fn shift_left(&mut self, bits: usize) {
        let (limbs, bits) = (bits / 64, bits % 64);
        for i in (0..N).rev() {
            let at = |i: Option<usize>| i.and_then(|i| self.0.get(i)).copied().unwrap_or(0);
            let from = i.checked_sub(limbs);
            let high = at(from) << bits;
            let low = if bits == 0 {
                0
            } else {
                at(from.and_then(|f| f.checked_sub(1))) >> (64 - bits)
            };
            if let Some(limb) = self.0.get_mut(i) {
                *limb = high | low;
            }
        }
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}
