//! The settings of server-side JavaScript.

use frond_javascript::Placement;

use super::table::{Kind, Setting, integer, switch};

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

/// `--noscripting`
pub const DISABLED: Setting = Setting {
    flag: "noscripting",
    key: "security.javascriptEnabled",
    aliases: &[],
    kind: Kind::Switch(false),
    help: "Refuse $where, $function, $accumulator and mapReduce",
    apply: |s, v| switch(v).map(|on| s.javascript.is_enabled = on),
};

/// `setParameter.enableGroupAndEval`
pub const OLD_COMMANDS: Setting = Setting {
    flag: "",
    key: "setParameter.enableGroupAndEval",
    aliases: &[],
    kind: Kind::Switch(false),
    help: "Allow the commands group and eval, which MongoDB has removed",
    apply: |s, v| switch(v).map(|on| s.javascript.has_old_commands = on),
};

/// `setParameter.jsHeapLimitMB`
pub const HEAP_LIMIT: Setting = Setting {
    flag: "",
    key: "setParameter.jsHeapLimitMB",
    aliases: &[],
    kind: Kind::Integer(1, 1 << 20),
    help: "MiB that the JavaScript of one request may have on a thread (default 1100)",
    apply: |s, v| integer(v).map(|mib| s.javascript.heap_limit_mb = mib),
};
