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
        self.add((name.0, name.1), MetricType::GAUGE, labels, valued(value));
    }

    /// One series of a value whose name is only known now.
    pub fn named_gauge(&mut self, name: String, help: String, labels: Labels<'_>, value: f64) {
        self.add((&name, &help), MetricType::GAUGE, labels, valued(value));
    }

    /// Latencies without labels.
    pub fn latencies(&mut self, name: Named, buckets: &LatencyBuckets) {
        self.latencies_of(name, &[], buckets);
    }

    /// One series of latencies. Its count is the sum of its buckets, whatever was recorded
    /// meanwhile.
    pub fn latencies_of(&mut self, name: Named, labels: Labels<'_>, buckets: &LatencyBuckets) {
        self.latencies_up_to(name, labels, buckets, |_| true);
    }

    /// One series of latencies with fewer bounds: those of a microsecond and more that are 1, 2 or
    /// 5 times a power of ten. For what each session has, so that a scrape of many stays small.
    pub fn coarse_latencies_of(
        &mut self,
        name: Named,
        labels: Labels<'_>,
        buckets: &LatencyBuckets,
    ) {
        self.latencies_up_to(name, labels, buckets, is_coarse);
    }

    fn latencies_up_to(
        &mut self,
        name: Named,
        labels: Labels<'_>,
        buckets: &LatencyBuckets,
        is_bound: impl Fn(u64) -> bool,
    ) {
        let mut cumulative = 0_u64;
        let bucket = |(count, bound_ns): (&u64, &u64)| {
            cumulative = cumulative.wrapping_add(*count);
            is_bound(*bound_ns).then(|| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(seconds(*bound_ns));
                bucket.set_cumulative_count(cumulative);
                bucket
            })
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.counts.iter().zip(&BOUNDS_NS).filter_map(bucket).collect());
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

/// Whether a bound in nanoseconds is one of the few.
fn is_coarse(bound_ns: u64) -> bool {
    let decade_ns = 10_u64.pow(bound_ns.max(1).ilog10());
    bound_ns >= 1_000 && [1, 2, 5].map(|times| times * decade_ns).contains(&bound_ns)
}

fn counted(value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = Metric::default();
    metric.set_counter(counter);
    metric
}

fn valued(value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::default();
    metric.set_gauge(gauge);
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

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Named = Named("test_seconds", "A test.");

    fn buckets_of(families: Families) -> Vec<(f64, u64)> {
        let [family] = &families.into_inner()[..] else { panic!("one family") };
        let histogram = family.get_metric()[0].get_histogram();
        let told = histogram.get_bucket().iter();
        told.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count())).collect()
    }

    #[test]
    fn few_bounds_count_what_all_bounds_count_up_to_the_same_latency() {
        let mut latencies = LatencyBuckets::new();
        (0..2_000_000_000).step_by(1_234_567).for_each(|ns| latencies.record(ns));
        (0..5_000).step_by(7).for_each(|ns| latencies.record(ns));
        let (mut all, mut few) = (Families::default(), Families::default());
        all.latencies_of(NAME, &[], &latencies);
        few.coarse_latencies_of(NAME, &[], &latencies);
        let (all, few) = (buckets_of(all), buckets_of(few));
        assert_eq!(all.len(), BOUNDS_NS.len());
        assert!(few.iter().all(|bucket| all.contains(bucket)), "{few:?} of {all:?}");
        let bounds: Vec<f64> = few.iter().map(|(bound, _)| *bound).collect();
        assert_eq!(bounds[..4], [1e-6, 2e-6, 5e-6, 1e-5]);
        assert_eq!((bounds.len(), bounds.last()), (19, Some(&1.0)));
    }
}
