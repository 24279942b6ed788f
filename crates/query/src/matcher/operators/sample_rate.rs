//! `$sampleRate`: a random sample of the documents.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_bson::Value;

use super::super::Expr;
use super::super::parse::Context;
use frond_error::{Error, ErrorCode, Result};

/// The share of documents that pass, and what decides.
#[derive(Clone, Debug)]
pub struct SampleRate {
    rate: f64,
    /// The state of a generator (SplitMix64), which each query seeds differently and each document advances.
    state: Arc<AtomicU64>,
}

impl SampleRate {
    /// The share of documents that pass, from 0 to 1.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    pub(crate) fn passes(&self) -> bool {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        ((z >> 11) as f64) * (1.0 / (1u64 << 53) as f64) < self.rate
    }
}

pub(crate) fn parse(context: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    if context.environment.is_none() {
        return Err(Error::new(
            ErrorCode::QueryFeatureNotAllowed,
            "$sampleRate is not allowed in this context",
        ));
    }
    let rate = match argument.as_f64() {
        Some(rate) => rate,
        None => {
            return Err(Error::bad_value(
                "argument to $sampleRate must be a numeric type",
            ));
        }
    };
    if !(0.0..=1.0).contains(&rate) {
        return Err(Error::bad_value(
            "numeric argument to $sampleRate must be in [0, 1]",
        ));
    }
    // The standard library seeds its hash maps randomly, which is good enough here.
    let seed = RandomState::new().build_hasher().finish();
    Ok(Some(Expr::Sample(SampleRate {
        rate,
        state: Arc::new(AtomicU64::new(seed)),
    })))
}
