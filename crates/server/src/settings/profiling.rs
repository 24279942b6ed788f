//! The settings of the profiler.

use frond_bson::DocBuf;

/// The profiler at the start.
#[derive(Clone, Debug)]
pub struct ProfilingSettings {
    /// The level of all databases.
    pub level: u8,
    /// The part of slow operations that is logged and recorded.
    pub sample_rate: f64,
    /// A filter that selects the operations that are logged and recorded, in place of slow ones.
    pub filter: Option<DocBuf>,
}

impl Default for ProfilingSettings {
    fn default() -> ProfilingSettings {
        ProfilingSettings {
            level: 0,
            sample_rate: 1.0,
            filter: None,
        }
    }
}
