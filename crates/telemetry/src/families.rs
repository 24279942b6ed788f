//! Metric families in the order in which they were added, and their text.
//!
//! The format is Prometheus' text format 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>), which every version of Prometheus reads.

use std::collections::HashMap;

use prometheus::proto::{self, MetricType};
use prometheus::{Encoder, TextEncoder};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The label names and values of one series.
pub type Labels<'a> = [(&'a str, &'a str)];

/// One bucket of a histogram: its inclusive upper bound, and how many observations are in it or in a lower one.
pub struct Bucket {
    pub upper_bound: f64,
    pub cumulative_count: u64,
}

/// Families by their name.
#[derive(Default)]
pub struct Families {
    families: Vec<proto::MetricFamily>,
    by_name: HashMap<String, usize>,
}

impl Families {
    /// Adds a value that only grows. The name ends in `_total`.
    pub fn counter(&mut self, name: &str, help: &str, labels: &Labels<'_>, value: f64) {
        let mut counter = proto::Counter::default();
        counter.set_value(value);
        let mut metric = labelled(labels);
        metric.set_counter(counter);
        self.push(name, help, MetricType::COUNTER, metric);
    }

    /// Adds a value that grows and shrinks.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &Labels<'_>, value: f64) {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        let mut metric = labelled(labels);
        metric.set_gauge(gauge);
        self.push(name, help, MetricType::GAUGE, metric);
    }

    /// Adds a histogram. The buckets are in the order of their bounds; the one without a bound is added by the format.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &Labels<'_>,
        buckets: impl IntoIterator<Item = Bucket>,
        count: u64,
        sum: f64,
    ) {
        let bucket = |bucket: Bucket| {
            let mut out = proto::Bucket::default();
            out.set_upper_bound(bucket.upper_bound);
            out.set_cumulative_count(bucket.cumulative_count);
            out
        };
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets.into_iter().map(bucket).collect());
        histogram.set_sample_count(count);
        histogram.set_sample_sum(sum);
        let mut metric = labelled(labels);
        metric.set_histogram(histogram);
        self.push(name, help, MetricType::HISTOGRAM, metric);
    }

    fn push(&mut self, name: &str, help: &str, kind: MetricType, metric: proto::Metric) {
        let index = match self.by_name.get(name) {
            Some(index) => *index,
            None => {
                let mut family = proto::MetricFamily::default();
                family.set_name(name.to_string());
                family.set_help(help.to_string());
                family.set_field_type(kind);
                self.by_name.insert(name.to_string(), self.families.len());
                self.families.push(family);
                self.families.len() - 1
            }
        };
        if let Some(family) = self.families.get_mut(index)
            // Two sources of one name must not mix types: the format allows one for each family.
            && family.get_field_type() == kind
        {
            family.mut_metric().push(metric);
        }
    }

    /// The text of all families.
    pub fn encode(&self) -> String {
        let mut text = Vec::new();
        // The encoder refuses only families without a name or a series, and `push` makes neither.
        let encoded = TextEncoder::new().encode(&self.families, &mut text);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn labelled(labels: &Labels<'_>) -> proto::Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_string());
        pair.set_value((*value).to_string());
        pair
    };
    proto::Metric::from_label(labels.iter().map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_name_are_one_family() {
        let mut families = Families::default();
        families.counter("a_total", "All a.", &[("kind", "x")], 1.0);
        families.gauge("b", "Now b.", &[], 2.5);
        families.counter("a_total", "All a.", &[("kind", "say \"y\"\n")], 3.0);
        families.gauge("a_total", "Of another type.", &[], 4.0);
        let expected = "# HELP a_total All a.\n# TYPE a_total counter\na_total{kind=\"x\"} 1\n\
            a_total{kind=\"say \\\"y\\\"\\n\"} 3\n# HELP b Now b.\n# TYPE b gauge\nb 2.5\n";
        assert_eq!(families.encode(), expected);
    }

    #[test]
    fn histograms_end_in_an_infinite_bucket() {
        let mut families = Families::default();
        let bucket = Bucket {
            upper_bound: 0.5,
            cumulative_count: 2,
        };
        families.histogram("h", "Times.", &[], [bucket], 3, 1.5);
        let text = families.encode();
        assert!(
            text.contains(
                "h_bucket{le=\"0.5\"} 2\nh_bucket{le=\"+Inf\"} 3\nh_sum 1.5\nh_count 3\n"
            )
        );
    }
}
