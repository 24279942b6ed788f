//! The settings of server-side JavaScript.

use frond_javascript::Placement;

/// The memory limit of an engine, in MiB, as in MongoDB.
const HEAP_LIMIT_MB: u32 = 1100;

/// Whether functions of JavaScript run, and within what.
#[derive(Clone, Debug)]
pub struct JavaScriptSettings {
    /// Whether there is JavaScript.
    pub is_enabled: bool,
    /// The memory limit of one engine, in MiB.
    pub heap_limit_mb: u32,
    /// Whether there are `group` and `eval`.
    pub has_old_commands: bool,
    /// The process that runs functions. The program sets it, and no setting does.
    pub placement: Placement,
}

impl Default for JavaScriptSettings {
    fn default() -> JavaScriptSettings {
        JavaScriptSettings {
            is_enabled: true,
            heap_limit_mb: HEAP_LIMIT_MB,
            has_old_commands: false,
            placement: Placement::InProcess,
        }
    }
}
