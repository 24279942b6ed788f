//! Fail points: commands, retryable writes and reads of cursors that fail, wait or lose their connection on demand, for tests of
//! applications and drivers. Only with `--setParameter enableTestCommands=1`. MongoDB's driver specifications describe
//! `failCommand`, `onPrimaryTransactionalWrite` and `failGetMoreAfterCursorCheckout`; the others are in [`switches`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use switches::{SwitchName, Waits};

use frond_bson::{ArrayBuf, Doc, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use parking_lot::Mutex;

use crate::arguments::{Arguments, whole};
use switches::Switches;

mod switches;

/// When a fail point is active.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Off,
    AlwaysOn,
    /// For this many further commands.
    Times(u64),
    /// After this many commands.
    Skip(u64),
    /// With this probability, from 0 to 1.
    Probability(f64),
}

impl Mode {
    /// Reads `mode`: `"off"`, `"alwaysOn"`, `{times: n}`, `{skip: n}` or
    /// `{activationProbability: p}`.
    pub fn parse(value: &Value<'_>) -> Result<Mode> {
        let wrong = || Error::bad_value(format!("unknown mode of a fail point: {value:?}"));
        let mode = match value {
            Value::String("off") => return Ok(Mode::Off),
            Value::String("alwaysOn") => return Ok(Mode::AlwaysOn),
            Value::Document(mode) => mode,
            _ => return Err(wrong()),
        };
        let (name, value) = mode.first().ok_or_else(wrong)?;
        if !value.is_number() {
            return Err(wrong());
        }
        let count = || u64::try_from(whole(&value)).map_err(|_| wrong());
        match name {
            "times" => count().map(Mode::Times),
            "skip" => count().map(Mode::Skip),
            "activationProbability" => match value.as_f64() {
                Some(p) if (0.0..=1.0).contains(&p) => Ok(Mode::Probability(p)),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }

    /// Whether it is active for this command.
    fn acts(&mut self) -> bool {
        match self {
            Mode::Off => false,
            Mode::AlwaysOn => true,
            Mode::Times(0) => {
                *self = Mode::Off;
                false
            }
            Mode::Times(left) => {
                *left -= 1;
                true
            }
            Mode::Skip(0) => true,
            Mode::Skip(left) => {
                *left -= 1;
                false
            }
            Mode::Probability(p) => {
                let fraction: f64 = rand::random();
                fraction < *p
            }
        }
    }
}

/// The effect on a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effect {
    /// It waits this long first.
    pub block: Option<Duration>,
    /// The connection is closed, and the command not run.
    pub close: bool,
    /// The command is not run, and answered with this code.
    pub error: Option<i32>,
    /// `errorLabels` of the reply, instead of those that the server would choose.
    pub labels: Option<ArrayBuf>,
    /// Further fields of the error.
    pub extra: Option<DocBuf>,
    /// `writeConcernError` of the reply.
    pub write_concern_error: Option<DocBuf>,
}

impl Effect {
    /// The error that replaces running the command.
    pub fn failure(&self) -> Option<Error> {
        let code = self.error?;
        let failure = Error::new(
            ErrorCode::from_code(code),
            "Failing command via 'failCommand' failpoint",
        );
        Some(match &self.extra {
            Some(extra) => failure.with_details(extra.clone()),
            None => failure,
        })
    }

    /// Adds `writeConcernError` to the reply of a command that was run, if it has none. Returns its code.
    pub fn add_to(&self, reply: &mut DocBuf) -> Option<ErrorCode> {
        let error = self.write_concern_error.as_ref()?;
        if reply.contains_key("writeConcernError") {
            return None;
        }
        reply.push("writeConcernError", error);
        let code = error.get("code").map_or(0, |code| whole(&code));
        Some(ErrorCode::from_code(i32::try_from(code).unwrap_or(0)))
    }
}

/// The data of `failCommand`.
#[derive(Debug)]
struct FailCommand {
    mode: Mode,
    acted: u64,
    commands: Vec<String>,
    /// Whether it is about all commands.
    is_about_all: bool,
    application: Option<String>,
    /// The name of the connection.
    thread: Option<String>,
    namespace: Option<String>,
    effect: Effect,
}

/// The data of `onPrimaryTransactionalWrite` and `failGetMoreAfterCursorCheckout`.
#[derive(Debug)]
struct FailStep {
    mode: Mode,
    acted: u64,
    effect: StepEffect,
}

impl FailStep {
    /// Its effect, if it is active now.
    fn act(&mut self) -> Option<StepEffect> {
        if !self.mode.acts() {
            return None;
        }
        self.acted += 1;
        Some(self.effect)
    }
}

/// The effect on a statement of a retryable write, or on a getMore that has its cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepEffect {
    /// The connection is closed instead of a reply.
    pub close: bool,
    /// The step is not executed, and fails with this code.
    pub error: Option<i32>,
}

/// The fail points of a server.
#[derive(Debug, Default)]
pub struct FailPoints {
    /// Whether a fail point is set.
    on: AtomicBool,
    fail_command: Mutex<Option<FailCommand>>,
    fail_write: Mutex<Option<FailStep>>,
    fail_get_more: Mutex<Option<FailStep>>,
    switches: Switches,
}

impl FailPoints {
    /// Sets `failCommand`. Returns how often it acted before.
    ///
    /// # Errors
    /// `BadValue` and `TypeMismatch` for data that it does not accept.
    pub fn set(&self, mode: Mode, data: Option<&Doc>) -> Result<u64> {
        let args = Arguments::new("failCommand", data.unwrap_or(Doc::empty()));
        args.only(&[
            "failCommands",
            "errorCode",
            "closeConnection",
            "errorLabels",
            "writeConcernError",
            "appName",
            "namespace",
            "blockConnection",
            "blockTimeMS",
            "failInternalCommands",
            "failLocalClients",
            "failAllCommands",
            "threadName",
            "errorExtraInfo",
        ])?;
        // All clients come from outside: there are none that these could add.
        for flag in ["failInternalCommands", "failLocalClients"] {
            args.flag(flag)?;
        }
        let strings = |name: &str| -> Result<Vec<String>> {
            let list = args.array(name)?.into_iter().flat_map(|list| list.values());
            list.map(|value| match value.as_str() {
                Some(text) => Ok(text.to_owned()),
                None => Err(args.wrong_type(name, &value, "type 'string'")),
            })
            .collect()
        };
        strings("errorLabels")?;
        let block = args.flag("blockConnection")?.unwrap_or(false);
        let effect = Effect {
            block: match (block, args.u64("blockTimeMS")?) {
                (false, _) => None,
                (true, Some(ms)) => Some(Duration::from_millis(ms)),
                (true, None) => return Err(args.missing("blockTimeMS")),
            },
            close: args.flag("closeConnection")?.unwrap_or(false),
            error: args
                .i64("errorCode")?
                .map(|code| i32::try_from(code).unwrap_or(i32::MAX)),
            labels: args
                .array("errorLabels")?
                .map(|labels| labels.values().collect()),
            extra: args.doc_field("errorExtraInfo")?.map(Doc::to_owned),
            write_concern_error: args.doc_field("writeConcernError")?.map(Doc::to_owned),
        };
        let new = FailCommand {
            mode,
            acted: 0,
            commands: strings("failCommands")?,
            is_about_all: args.flag("failAllCommands")?.unwrap_or(false),
            application: args.str("appName")?.map(str::to_owned),
            thread: args.str("threadName")?.map(str::to_owned),
            namespace: args.str("namespace")?.map(str::to_owned),
            effect,
        };
        let acted = {
            let mut current = self.fail_command.lock();
            let old = current.replace(new);
            old.map_or(0, |old| old.acted)
        };
        self.note();
        Ok(acted)
    }

    /// Sets `onPrimaryTransactionalWrite`. Returns how often it acted before.
    ///
    /// # Errors
    /// `BadValue` and `TypeMismatch` for data that it does not accept.
    pub fn set_on_write(&self, mode: Mode, data: Option<&Doc>) -> Result<u64> {
        let args = Arguments::new("onPrimaryTransactionalWrite", data.unwrap_or(Doc::empty()));
        args.only(&["closeConnection", "failBeforeCommitExceptionCode"])?;
        let code = args.i64("failBeforeCommitExceptionCode")?;
        let new = FailStep {
            mode,
            acted: 0,
            effect: StepEffect {
                close: args.flag("closeConnection")?.unwrap_or(true),
                error: code.map(|code| i32::try_from(code).unwrap_or(i32::MAX)),
            },
        };
        let old = self.fail_write.lock().replace(new);
        self.note();
        Ok(old.map_or(0, |old| old.acted))
    }

    /// Sets `failGetMoreAfterCursorCheckout`. Returns how often it acted before.
    ///
    /// # Errors
    /// `BadValue` and `TypeMismatch` for data that it does not accept.
    pub fn set_on_get_more(&self, mode: Mode, data: Option<&Doc>) -> Result<u64> {
        let args = Arguments::new(
            "failGetMoreAfterCursorCheckout",
            data.unwrap_or(Doc::empty()),
        );
        args.only(&["errorCode", "closeConnection"])?;
        let code = args.i64("errorCode")?;
        let new = FailStep {
            mode,
            acted: 0,
            effect: StepEffect {
                close: args.flag("closeConnection")?.unwrap_or(false),
                error: code.map(|code| i32::try_from(code).unwrap_or(i32::MAX)),
            },
        };
        let old = self.fail_get_more.lock().replace(new);
        self.note();
        Ok(old.map_or(0, |old| old.acted))
    }

    /// Notes whether any fail point is set.
    fn note(&self) {
        let is_set = |mode: Mode| mode != Mode::Off;
        let command = self.fail_command.lock();
        let steps = [self.fail_write.lock(), self.fail_get_more.lock()];
        let is_on = command.as_ref().is_some_and(|point| is_set(point.mode))
            || (steps.iter()).any(|step| step.as_ref().is_some_and(|step| is_set(step.mode)));
        let is_on = is_on || self.switches.any_is_on();
        self.on.store(is_on, Ordering::Relaxed);
    }

    /// Sets a switch. Returns how often it acted before.
    ///
    /// # Errors
    /// `BadValue` and `TypeMismatch` for data that it does not accept.
    pub fn set_switch(&self, name: SwitchName, mode: Mode, data: Option<&Doc>) -> Result<u64> {
        let acted = self.switches.set(name, mode, data)?;
        self.note();
        Ok(acted)
    }

    /// Whether a switch acts now, on an operation of a namespace.
    #[inline]
    pub fn acts(&self, name: SwitchName, namespace: &str) -> Option<Waits> {
        if !self.is_on() {
            return None;
        }
        self.switches.acts(name, namespace)
    }

    /// Whether a switch is still on, for those who wait for its end.
    pub fn is_still_on(&self, name: SwitchName) -> bool {
        self.is_on() && self.switches.is_on(name)
    }

    /// The number of times that a fail point has acted since it was set. None for an unknown name.
    pub fn times(&self, name: &str) -> Option<u64> {
        let of_step = |step: &Mutex<Option<FailStep>>| {
            let step = step.lock();
            step.as_ref().map_or(0, |step| step.acted)
        };
        match name {
            "failCommand" => {
                let point = self.fail_command.lock();
                Some(point.as_ref().map_or(0, |point| point.acted))
            }
            "onPrimaryTransactionalWrite" => Some(of_step(&self.fail_write)),
            "failGetMoreAfterCursorCheckout" => Some(of_step(&self.fail_get_more)),
            name => SwitchName::find(name).map(|name| self.switches.times(name)),
        }
    }

    /// The effect on a statement of a retryable write.
    pub fn of_write(&self) -> Option<StepEffect> {
        if !self.is_on() {
            return None;
        }
        self.fail_write.lock().as_mut()?.act()
    }

    /// The effect on a getMore that has its cursor.
    pub fn of_get_more(&self) -> Option<StepEffect> {
        if !self.is_on() {
            return None;
        }
        self.fail_get_more.lock().as_mut()?.act()
    }

    /// Whether any command may fail.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The effect on a command with any of these names.
    pub fn effect_on(
        &self,
        names: &[&str],
        application: Option<&str>,
        thread: &str,
        namespace: impl FnOnce() -> String,
    ) -> Option<Effect> {
        if !self.is_on() {
            return None;
        }
        let mut current = self.fail_command.lock();
        let point = current.as_mut()?;
        let is_named = |command: &String| names.contains(&command.as_str());
        let is_about_all = point.is_about_all && !names.contains(&"configureFailPoint");
        let meant = (is_about_all || point.commands.iter().any(is_named))
            && (point.thread.is_none() || point.thread.as_deref() == Some(thread))
            && (point.application.is_none() || point.application.as_deref() == application)
            && point
                .namespace
                .as_ref()
                .is_none_or(|meant| *meant == namespace());
        if !meant || !point.mode.acts() {
            return None;
        }
        point.acted += 1;
        Some(point.effect.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;

    #[test]
    fn modes_count() {
        let acts = |mode: &DocBuf, tries: usize| -> usize {
            let mut mode = Mode::parse(&mode.get("mode").unwrap()).unwrap();
            (0..tries).filter(|_| mode.acts()).count()
        };
        assert_eq!(acts(&doc! {"mode": "alwaysOn"}, 5), 5);
        assert_eq!(acts(&doc! {"mode": "off"}, 5), 0);
        assert_eq!(acts(&doc! {"mode": {"times": 2}}, 5), 2);
        assert_eq!(acts(&doc! {"mode": {"skip": 2}}, 5), 3);
        assert_eq!(acts(&doc! {"mode": {"activationProbability": 1.0}}, 5), 5);
        assert_eq!(acts(&doc! {"mode": {"activationProbability": 0}}, 5), 0);
        for wrong in [
            doc! {"mode": "on"},
            doc! {"mode": {"times": -1}},
            doc! {"mode": {"times": "x"}},
            doc! {"mode": {"activationProbability": 2}},
            doc! {"mode": {}},
            doc! {"mode": 1},
        ] {
            assert!(
                Mode::parse(&wrong.get("mode").unwrap()).is_err(),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn only_what_is_meant_fails() {
        let points = FailPoints::default();
        let name = || "test.c".to_owned();
        assert_eq!(points.effect_on(&["find"], None, "conn1", name), None);
        let data = doc! {"failCommands": ["find"], "errorCode": 91, "appName": "a"};
        assert_eq!(points.set(Mode::AlwaysOn, Some(&data)).unwrap(), 0);
        assert_eq!(
            points.effect_on(&["insert"], Some("a"), "conn1", name),
            None
        );
        assert_eq!(points.effect_on(&["find"], None, "conn1", name), None);
        let effect = points
            .effect_on(&["find"], Some("a"), "conn1", name)
            .unwrap();
        assert_eq!(effect.failure().unwrap().code().code(), 91);
        let data = doc! {"failCommands": ["find"], "closeConnection": true, "namespace": "test.d"};
        assert_eq!(points.set(Mode::AlwaysOn, Some(&data)).unwrap(), 1);
        assert_eq!(points.effect_on(&["find"], None, "conn1", name), None);
        assert!(
            points
                .effect_on(&["find"], None, "conn1", || "test.d".into())
                .unwrap()
                .close
        );
        points.set(Mode::Off, None).unwrap();
        assert_eq!(
            points.effect_on(&["find"], None, "conn1", || "test.d".into()),
            None
        );
        let data = doc! {"failAllCommands": true, "errorCode": 91, "threadName": "conn1"};
        points.set(Mode::AlwaysOn, Some(&data)).unwrap();
        assert!(points.effect_on(&["find"], None, "conn1", name).is_some());
        assert_eq!(points.effect_on(&["find"], None, "conn2", name), None);
        assert_eq!(
            points.effect_on(&["configureFailPoint"], None, "conn1", name),
            None
        );
        assert_eq!(points.times("failCommand"), Some(1));
        assert_eq!(points.times("nonsense"), None);
        for wrong in [
            doc! {"failCommands": [1]},
            doc! {"blockConnection": true},
            doc! {"nonsense": 1},
        ] {
            assert!(
                points.set(Mode::AlwaysOn, Some(&wrong)).is_err(),
                "{wrong:?}"
            );
        }
    }
}
