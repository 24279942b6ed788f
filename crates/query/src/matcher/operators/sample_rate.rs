//! `$sampleRate`: a random sample of the documents.

use std::sync::Arc;

use frond_bson::Value;

use super::super::Expr;
use super::super::parse::Context;
use crate::random::Random;
use frond_error::{Error, ErrorCode, Result};

/// The share of documents that pass, and what decides.
#[derive(Clone, Debug)]
pub struct SampleRate {
    rate: f64,
    /// Each query seeds it differently, and each document advances it.
    random: Arc<Random>,
}

impl SampleRate {
    /// The share of documents that pass, from 0 to 1.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    pub(crate) fn passes(&self) -> bool {
        self.random.fraction() < self.rate
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
    Ok(Some(Expr::Sample(SampleRate {
        rate,
        random: Arc::new(Random::new()),
    })))
}
