//! Puts Prometheus' metric families together from figures that were counted elsewhere (feature
//! `prometheus`): the publisher and a subscriber's application tell theirs in the same form.

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

use crate::{BOUNDS_NS, LatencyBuckets};

const NS_PER_S: f64 = 1e9;

/// Name and help of one family.
#[derive(Clone, Copy, Debug)]
pub struct Named(
    /// Name, with its unit.
    pub &'static str,
    /// What it means, and its definition where there are several.
    pub &'static str,
);

/// Labels of one series, in the same order for all of a family.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// Families on their way to the encoder, in the order in which they were begun.
#[derive(Debug, Default)]
pub struct Families(Vec<MetricFamily>);

impl Families {
    /// What a collector hands on.
    #[must_use]
    pub fn into_inner(self) -> Vec<MetricFamily> {
        self.0
    }

    /// A count without labels.
    pub fn counter(&mut self, name: Named, value: u64) {
        self.counter_of(name, &[], value as f64);
    }

    /// A count of nanoseconds, as seconds.
    pub fn counter_seconds(&mut self, name: Named, ns: u64) {
        self.counter_of(name, &[], seconds(ns));
    }

    /// One series of a count.
    pub fn counter_of(&mut self, name: Named, labels: Labels<'_>, value: f64) {
        self.add((name.0, name.1), MetricType::COUNTER, labels, counted(value));
    }

    /// One series of a count whose name is only known now.
    pub fn named_counter(&mut self, name: String, help: String, labels: Labels<'_>, value: f64) {
        self.add((&name, &help), MetricType::COUNTER, labels, counted(value));
    }

    /// A count for each value of one label.
    pub fn counters(&mut self, name: Named, label: &'static str, counts: &[(&str, u64)]) {
        for (value, count) in counts {
            self.counter_of(name, &[(label, value)], *count as f64);
        }
    }

    /// A value without labels.
    pub fn gauge(&mut self, name: Named, value: f64) {
        self.gauge_of(name, &[], value);
    }

    /// One series of a value.
    pub fn gauge_of(&mut self, name: Named, labels: Labels<'_>, value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = Metric::default();
        metric.set_gauge(gauge);
        self.add((name.0, name.1), MetricType::GAUGE, labels, metric);
    }

    /// Latencies without labels.
    pub fn latencies(&mut self, name: Named, buckets: &LatencyBuckets) {
        self.latencies_of(name, &[], buckets);
    }

    /// One series of latencies. Its count is the sum of its buckets, whatever was recorded
    /// meanwhile.
    pub fn latencies_of(&mut self, name: Named, labels: Labels<'_>, buckets: &LatencyBuckets) {
        let mut cumulative = 0_u64;
        let bucket = |(count, bound_ns): (&u64, &u64)| {
            cumulative = cumulative.wrapping_add(*count);
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(seconds(*bound_ns));
            bucket.set_cumulative_count(cumulative);
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.counts.iter().zip(&BOUNDS_NS).map(bucket).collect());
        histogram.set_sample_count(buckets.count());
        histogram.set_sample_sum(seconds(buckets.sum_ns));
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        self.add((name.0, name.1), MetricType::HISTOGRAM, labels, metric);
    }

    fn add(
        &mut self,
        (name, help): (&str, &str),
        kind: MetricType,
        labels: Labels<'_>,
        mut metric: Metric,
    ) {
        metric.set_label(labels.iter().map(|(name, value)| label(name, value)).collect());
        match self.0.iter_mut().rfind(|family| family.name() == name) {
            Some(family) => family.mut_metric().push(metric),
            None => {
                let mut family = MetricFamily::default();
                family.set_name(name.to_owned());
                family.set_help(help.to_owned());
                family.set_field_type(kind);
                family.set_metric(vec![metric]);
                self.0.push(family);
            }
        }
    }
}

fn counted(value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = Metric::default();
    metric.set_counter(counter);
    metric
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// Nanoseconds as seconds.
#[must_use]
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S
}

/// 1 for yes.
#[must_use]
pub fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}
