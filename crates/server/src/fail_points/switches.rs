//! Fail points that are on or off: limits of time that end at once or never, places where reads wait, and members that fall behind.

use frond_bson::Doc;
use frond_error::Result;
use parking_lot::Mutex;

use super::Mode;
use crate::arguments::Arguments;

/// The name of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchName {
    /// Operations with a time limit fail.
    MaxTimeAlwaysTimeOut,
    /// Limits of time have no effect.
    MaxTimeNeverTimeOut,
    /// A find waits before it makes its first batch.
    WaitInFindBeforeMakingBatch,
    /// A getMore waits when it has its cursor.
    WaitAfterPinningCursorBeforeGetMoreBatch,
    /// A getMore waits when it has its batch.
    WaitBeforeUnpinningOrDeletingCursorAfterGetMoreBatch,
    /// A secondary receives no entries.
    StopReplProducer,
}

impl SwitchName {
    /// All switches with their names.
    pub const ALL: [(SwitchName, &'static str); 6] = [
        (SwitchName::MaxTimeAlwaysTimeOut, "maxTimeAlwaysTimeOut"),
        (SwitchName::MaxTimeNeverTimeOut, "maxTimeNeverTimeOut"),
        (
            SwitchName::WaitInFindBeforeMakingBatch,
            "waitInFindBeforeMakingBatch",
        ),
        (
            SwitchName::WaitAfterPinningCursorBeforeGetMoreBatch,
            "waitAfterPinningCursorBeforeGetMoreBatch",
        ),
        (
            SwitchName::WaitBeforeUnpinningOrDeletingCursorAfterGetMoreBatch,
            "waitBeforeUnpinningOrDeletingCursorAfterGetMoreBatch",
        ),
        (SwitchName::StopReplProducer, "stopReplProducer"),
    ];

    /// The switch with this name.
    pub fn find(text: &str) -> Option<SwitchName> {
        let mut all = SwitchName::ALL.iter();
        all.find(|(_, name)| *name == text).map(|(name, _)| *name)
    }

    pub fn text(self) -> &'static str {
        let mut all = SwitchName::ALL.iter();
        all.find(|(name, _)| *name == self)
            .map_or("", |(_, text)| text)
    }
}

/// The manner in which an operation waits at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Whether killOp and limits of time end the wait.
    pub checks_interrupts: bool,
}

/// A switch that was set.
#[derive(Debug)]
struct Switch {
    name: SwitchName,
    mode: Mode,
    acted: u64,
    /// The only namespace that it is about.
    namespace: Option<String>,
    waits: Waits,
}

impl Switch {
    fn is_on(&self) -> bool {
        !matches!(self.mode, Mode::Off | Mode::Times(0))
    }
}

/// The switches that were set.
#[derive(Debug, Default)]
pub struct Switches(Mutex<Vec<Switch>>);

impl Switches {
    /// Sets one. Returns how often it acted before.
    ///
    /// # Errors
    /// `BadValue` and `TypeMismatch` for data that it does not accept.
    pub fn set(&self, name: SwitchName, mode: Mode, data: Option<&Doc>) -> Result<u64> {
        let args = Arguments::new(name.text(), data.unwrap_or(Doc::empty()));
        args.only(&[
            "nss",
            "shouldCheckForInterrupt",
            "shouldContinueOnInterrupt",
        ])?;
        args.flag("shouldContinueOnInterrupt")?;
        let switch = Switch {
            name,
            mode,
            acted: 0,
            namespace: args.str("nss")?.map(str::to_owned),
            waits: Waits {
                checks_interrupts: args.flag("shouldCheckForInterrupt")?.unwrap_or(false),
            },
        };
        let mut all = self.0.lock();
        let acted = all
            .iter()
            .find(|one| one.name == name)
            .map_or(0, |one| one.acted);
        all.retain(|one| one.name != name);
        all.push(switch);
        Ok(acted)
    }

    /// Whether any is on.
    pub fn any_is_on(&self) -> bool {
        self.0.lock().iter().any(Switch::is_on)
    }

    /// Whether one is on.
    pub fn is_on(&self, name: SwitchName) -> bool {
        let all = self.0.lock();
        all.iter().any(|one| one.name == name && one.is_on())
    }

    /// The number of times that one has acted since it was set.
    pub fn times(&self, name: SwitchName) -> u64 {
        let all = self.0.lock();
        let found = all.iter().find(|one| one.name == name);
        found.map_or(0, |one| one.acted)
    }

    /// Whether one acts now.
    pub fn acts(&self, name: SwitchName, namespace: &str) -> Option<Waits> {
        let mut all = self.0.lock();
        let one = all.iter_mut().find(|one| one.name == name)?;
        let is_meant = one
            .namespace
            .as_ref()
            .is_none_or(|meant| meant.is_empty() || meant == namespace);
        if !is_meant || !one.mode.acts() {
            return None;
        }
        one.acted += 1;
        Some(one.waits)
    }
}
