//! Puts metric families together from figures that were counted elsewhere.

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use tapecast_telemetry::{BOUNDS_NS, LatencyBuckets};

const NS_PER_S: f64 = 1e9;

/// Name and help of one family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named(pub(super) &'static str, pub(super) &'static str);

/// Labels of one series, in the same order for all of a family.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Families on their way to the encoder, in the order in which they were begun.
#[derive(Debug, Default)]
pub(super) struct Families(Vec<MetricFamily>);

impl Families {
    pub(super) fn into_inner(self) -> Vec<MetricFamily> {
        self.0
    }

    /// A count without labels.
    pub(super) fn counter(&mut self, name: Named, value: u64) {
        self.counter_of(name, &[], value as f64);
    }

    /// A count of nanoseconds, as seconds.
    pub(super) fn counter_seconds(&mut self, name: Named, ns: u64) {
        self.counter_of(name, &[], seconds(ns));
    }

    /// One series of a count.
    pub(super) fn counter_of(&mut self, name: Named, labels: Labels<'_>, value: f64) {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut metric = Metric::default();
        metric.set_counter(counter);
        self.add(name, MetricType::COUNTER, labels, metric);
    }

    /// One series of a count whose name is only known now.
    pub(super) fn named_counter(
        &mut self,
        name: String,
        help: String,
        labels: Labels<'_>,
        value: f64,
    ) {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut metric = Metric::default();
        metric.set_counter(counter);
        metric.set_label(labels.iter().map(|(name, value)| label(name, value)).collect());
        let mut family = MetricFamily::default();
        family.set_name(name);
        family.set_help(help);
        family.set_field_type(MetricType::COUNTER);
        family.set_metric(vec![metric]);
        self.0.push(family);
    }

    /// A count for each value of one label.
    pub(super) fn counters(&mut self, name: Named, label: &'static str, counts: &[(&str, u64)]) {
        for (value, count) in counts {
            self.counter_of(name, &[(label, value)], *count as f64);
        }
    }

    /// A value without labels.
    pub(super) fn gauge(&mut self, name: Named, value: f64) {
        self.gauge_of(name, &[], value);
    }

    /// One series of a value.
    pub(super) fn gauge_of(&mut self, name: Named, labels: Labels<'_>, value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = Metric::default();
        metric.set_gauge(gauge);
        self.add(name, MetricType::GAUGE, labels, metric);
    }

    /// Latencies without labels.
    pub(super) fn latencies(&mut self, name: Named, buckets: &LatencyBuckets) {
        self.latencies_of(name, &[], buckets);
    }

    /// One series of latencies. Its count is the sum of its buckets, whatever was recorded
    /// meanwhile.
    pub(super) fn latencies_of(
        &mut self,
        name: Named,
        labels: Labels<'_>,
        buckets: &LatencyBuckets,
    ) {
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
        self.add(name, MetricType::HISTOGRAM, labels, metric);
    }

    fn add(&mut self, name: Named, kind: MetricType, labels: Labels<'_>, mut metric: Metric) {
        metric.set_label(labels.iter().map(|(name, value)| label(name, value)).collect());
        let Named(name, help) = name;
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

fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S
}

/// 1 for yes.
pub(super) fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}
