//! Traces by OpenTelemetry's protocol (OTLP over HTTP, in Protobuf): one span for each command.
//!
//! A span is made when its command has ended. Spans wait in a bounded queue for a thread that sends them in batches; if
//! the collector is slow or away, spans are dropped, and no command waits. Attributes follow OpenTelemetry's
//! conventions for databases (<https://opentelemetry.io/docs/specs/semconv/database/>).

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Span, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider,
};

use crate::TraceParent;
use crate::spans::{Finished, SpanError, TracingOptions};

/// Spans that wait to be sent.
const QUEUE_SPANS: usize = 8192;

/// The time limit for sending a batch.
const SEND_TIME: Duration = Duration::from_secs(5);

/// The longest wait at the end of the server for spans that are not sent yet.
const SHUTDOWN_TIME: Duration = Duration::from_secs(2);

/// Sends a span for each command.
#[derive(Debug)]
pub struct Tracing {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Tracing {
    /// Starts the thread that sends spans. The collector need not run yet.
    ///
    /// # Errors
    /// The endpoint is no `http` address, or the thread cannot be started.
    pub fn start(options: &TracingOptions) -> Result<Tracing, SpanError> {
        let endpoint = options.endpoint.trim_end_matches('/');
        if !endpoint.starts_with("http://") {
            return Err(SpanError(format!(
                "the collector's address {endpoint:?} must begin with http:// (for TLS run a collector beside the server)"
            )));
        }
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(SEND_TIME)
            .build()
            .map_err(|error| SpanError(error.to_string()))?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_SPANS)
            .with_scheduled_delay(Duration::from_secs(1));
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(config.build())
            .build();
        let sampler = Sampler::TraceIdRatioBased(options.sampling);
        let resource = Resource::builder()
            .with_service_name("frond")
            .with_attributes([
                KeyValue::new("service.version", options.version.clone()),
                KeyValue::new("service.instance.id", options.instance.clone()),
            ]);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_resource(resource.build())
            .build();
        let tracer = provider.tracer("frond");
        Ok(Tracing { provider, tracer })
    }

    /// Records a command that has ended now.
    pub fn record(&self, finished: Finished<'_>) {
        let end = SystemTime::now();
        let start = end.checked_sub(finished.took).unwrap_or(end);
        let parent = match &finished.parent {
            Some(parent) => Context::new().with_remote_span_context(context_of(parent)),
            None => Context::new(),
        };
        let target = finished.collection.unwrap_or(finished.database);
        let mut span = self
            .tracer
            .span_builder(format!("{} {target}", finished.command))
            .with_kind(SpanKind::Server)
            .with_start_time(start)
            .start_with_context(&self.tracer, &parent);
        if span.is_recording() {
            describe(&mut span, &finished);
            span.end_with_timestamp(end);
        }
    }

    /// Sends the spans that wait, for two seconds at most, and stops the thread.
    pub fn stop(&self) {
        // A collector that is away must not keep the server from ending, nor is it the server's failure.
        let _ = self.provider.shutdown_with_timeout(SHUTDOWN_TIME);
    }
}

fn context_of(parent: &TraceParent) -> SpanContext {
    SpanContext::new(
        TraceId::from(parent.trace),
        SpanId::from(parent.span),
        TraceFlags::new(parent.flags),
        true,
        TraceState::default(),
    )
}

fn describe(span: &mut impl Span, finished: &Finished<'_>) {
    let mut set = |name: &'static str, value: &str| {
        span.set_attribute(KeyValue::new(name, value.to_string()));
    };
    set("db.system.name", "mongodb");
    set("db.namespace", finished.database);
    set("db.operation.name", finished.command);
    set("client.address", finished.client);
    if let Some(collection) = finished.collection {
        set("db.collection.name", collection);
    }
    if let Some(application) = finished.application {
        set("mongodb.app_name", application);
    }
    if let Some(comment) = &finished.comment {
        set("mongodb.comment", comment);
    }
    if let Some((code, message)) = finished.error {
        set("db.response.status_code", &code.to_string());
        span.set_status(Status::error(message.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_is_accepted() {
        for endpoint in ["https://collector:4318", "127.0.0.1:4318", ""] {
            let options = TracingOptions {
                endpoint: endpoint.to_string(),
                sampling: 1.0,
                instance: String::new(),
                version: String::new(),
            };
            let refused = Tracing::start(&options).expect_err("it is refused");
            assert!(refused.to_string().contains("http://"), "{refused}");
        }
    }
}
