//! The verbosity of each component of the log.

use super::Settings;
use super::table::{Kind, Setting, SettingValue, integer};

/// The components, in the order of [`crate::log::Component`].
const NAMES: [&str; 8] = [
    "control",
    "network",
    "accessControl",
    "command",
    "storage",
    "index",
    "query",
    "transaction",
];

macro_rules! component {
    ($constant:ident, $name:literal) => {
        /// The verbosity of one component.
        pub const $constant: Setting = Setting {
            flag: "",
            key: concat!("systemLog.component.", $name, ".verbosity"),
            aliases: &[],
            kind: Kind::Integer(-1, 5),
            help: concat!(
                "Level of debug lines of ",
                $name,
                ": 0 to 5, or -1 for that of all (default -1)"
            ),
            apply: |s, v| set(s, $name, v),
        };
    };
}

component!(CONTROL, "control");
component!(NETWORK, "network");
component!(ACCESS, "accessControl");
component!(COMMAND, "command");
component!(STORAGE, "storage");
component!(INDEX, "index");
component!(QUERY, "query");
component!(TRANSACTION, "transaction");

fn set(settings: &mut Settings, name: &str, given: &SettingValue) -> Result<(), String> {
    let level: i8 = integer(given)?;
    let at = NAMES.iter().position(|known| *known == name);
    if let Some(own) = at.and_then(|at| settings.log_components.get_mut(at)) {
        *own = u8::try_from(level).ok();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Component;

    #[test]
    fn components_are_in_the_order_of_the_log() {
        for (name, component) in Component::NAMED {
            assert_eq!(NAMES.get(component as usize), Some(&name));
        }
    }
}
