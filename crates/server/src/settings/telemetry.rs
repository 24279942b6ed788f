//! Settings of traces.

use super::table::{Kind, Setting, SettingValue, text};

pub(super) const OTLP_ENDPOINT: Setting = Setting {
    flag: "otlpEndpoint",
    key: "telemetry.otlp.endpoint",
    aliases: &[],
    kind: Kind::Text("URL"),
    help: "Send a span for each traced command to this collector of OpenTelemetry, such as http://127.0.0.1:4318, by \
           OTLP over HTTP (default none)",
    apply: |s, v| text(v).map(|url| s.otlp_endpoint = Some(url.to_string())),
};

pub(super) const TRACE_SAMPLING: Setting = Setting {
    flag: "traceSampling",
    key: "telemetry.otlp.sampling",
    aliases: &[],
    kind: Kind::Number(0.0, 1.0),
    help: "Share of the commands to trace; a command whose comment names a client's span is traced if, and only if, that \
           span is sampled (default 1)",
    apply: |s, v| match v {
        SettingValue::Number(share) => {
            s.trace_sampling = *share;
            Ok(())
        }
        SettingValue::Integer(share) => {
            s.trace_sampling = *share as f64;
            Ok(())
        }
        _ => Err("must be a number".into()),
    },
};
