// How long does it take, where does the time go, and how even is it?
import {
    dashboard, graph, heatmap, line, mean, objectiveQuantile, objectiveRate, of, ofSubscriber, quantile, rate, row,
    stat, steps, worst,
} from './panels.mjs';

const delivery = ofSubscriber('tapecast_subscriber_delivery_seconds_bucket');
const endToEnd = ofSubscriber('tapecast_subscriber_end_to_end_seconds_bucket');
const who = 'instance, channel, session, subscriber';
const within = (bound) => `sum(${objectiveRate(ofSubscriber('tapecast_subscriber_delivery_seconds_bucket', `le="${bound}"`))})
/ sum(${objectiveRate(ofSubscriber('tapecast_subscriber_delivery_seconds_count'))})`;
const stages = [
    ['tapecast_source_to_publish_seconds', 'source → publish'],
    ['tapecast_publish_to_post_seconds', 'publish → post'],
    ['tapecast_subscriber_delivery_seconds', 'publish → receive'],
];
const perStage = (share) => stages.map(([name, legend]) => line(quantile(share, of(`${name}_bucket`)), legend));
const perChannel = 'instance, channel';
const besideDelivery = (share) => [
    line(quantile(share, endToEnd, perChannel), 'end to end, {{channel}} {{instance}}'),
    line(quantile(share, delivery, perChannel), 'delivery, {{channel}} {{instance}}'),
];
const fanOut = (share) => ['first', 'mean', 'last', 'skew'].map((which) =>
    line(quantile(share, of(`tapecast_fan_out_${which}_seconds_bucket`)), which));
const slow = steps(0, 'green', 0.0005, 'yellow', 0.001, 'red');
const dashed = steps(null, 'transparent', 0.001, 'red');

export default dashboard({
    uid: 'tapecast-latency',
    title: 'tapecast / latency',
    description: 'From the source to each subscriber: percentiles, stages, fan-out and jitter.',
    rows: [
        row('Now', 4,
            [4, stat('Delivery p50', 'Half of all deliveries of the chosen subscribers take no longer, publish to receive. Rises with everybody awake: the sender or the host.',
                's', line(quantile(0.5, delivery), 'p50'), { decimals: 1, thresholds: slow })],
            [4, stat('Delivery p99', 'The objective is 1 ms (tapecast-recording.rules.yml). As the alert has it: without subscribers that have an unreliable clock or --min-interval. Above it, go down this page: which stage, then which subscriber.',
                's', line(objectiveQuantile(0.99), 'p99'), { decimals: 1, thresholds: slow })],
            [4, stat('Delivery p99.9', 'The tail: one delivery of a thousand is slower. Alone high: scheduling on a subscriber, see involuntary switches on its host.',
                's', line(quantile(0.999, delivery), 'p99.9'), { decimals: 1, thresholds: steps(0, 'green', 0.005, 'yellow', 0.01, 'red') })],
            [4, stat('Within 100 µs', 'Share of the same deliveries within 100 µs, exactly: 100 µs is a bucket bound. A trial figure for a tighter objective.',
                'percentunit', line(within('0.0001'), 'share'), { decimals: 2 })],
            [4, stat('Within 1 ms', 'Share of the same deliveries within the objective of 1 ms, exactly. Below 99 % the alert TapecastDeliverySlow is near.',
                'percentunit', line(within('0.001'), 'share'),
                { decimals: 2, thresholds: steps(0, 'red', 0.99, 'yellow', 0.999, 'green') })],
            [4, stat('One-way figures',
                'Attached subscribers whose clock is off from the publisher\'s by more than metrics.clock_error_max_us, or known no better than that. Not 0: their one-way latencies mean nothing, use round trip and jitter; start PTP on that host.',
                'none', line(`count(${ofSubscriber('tapecast_subscriber_one_way_reliable')} == 0 and on (${who}) ${ofSubscriber('tapecast_subscriber_connected')} == 1) or vector(0)`, 'unreliable'),
                { decimals: 0, thresholds: steps(0, 'green', 1, 'orange') })]),
        row('Delivery, publish to receive', 10,
            [12, heatmap('Deliveries by latency',
                'Each cell is the deliveries a second in a bucket, a mean over four scrapes (20 s) or more: neighbouring columns overlap. A second band above the first: a group of subscribers, or wake-ups from sleep. A column that smears upwards: a burst; look at the queue and the sender at that time.',
                delivery)],
            [12, graph('Percentiles',
                'Publish to receive of the chosen subscribers together. The dashed line is the objective for p99.',
                's', [
                    line(quantile(0.5, delivery), 'p50'), line(quantile(0.9, delivery), 'p90'),
                    line(quantile(0.99, delivery), 'p99'), line(quantile(0.999, delivery), 'p99.9'),
                ], { log: true, table: true, thresholds: dashed })],
            [12, graph('p99 of the eight slowest',
                'Who is slow: the eight subscribers with the highest p99 anywhere in the shown time. One alone: that process or host. All alike: the publisher.',
                's', [line(worst(8, quantile(0.99, delivery, who)), '{{subscriber}}')],
                { log: true, table: true, thresholds: dashed })],
            [12, graph('Slowest delivery since the subscriber started',
                'The eight highest; an attachment anew does not set it back. It only rises: a step is the moment of a single slow delivery; look at the host of that subscriber at that time.',
                's', [line(worst(8, ofSubscriber('tapecast_subscriber_delivery_max_seconds')), '{{subscriber}}')],
                { log: true, table: true })]),
        row('End to end, receipt of the feed to receipt by a subscriber', 9,
            [12, graph('End to end beside delivery, p50',
                'Per channel. end to end: from the feed\'s receive time (ts_recv) to the subscriber; delivery: publish → receive, which is its last part. The gap is decoding, the book and the queue. Empty for recorded and simulated days, whose times are beyond the 60 s that are counted, unless source.receive_time is host.',
                's', besideDelivery(0.5), { log: true, table: true })],
            [12, graph('End to end beside delivery, p99',
                'The same for one in a hundred. Only end to end rises: the publisher falls behind its feed, look at Where the time goes. Both rise: the subscribers. Feed and subscriber have clocks of their own, and nothing is corrected.',
                's', besideDelivery(0.99), { log: true, table: true })]),
        row('Stages', 9,
            [8, graph('Where the time goes, p50',
                'source → publish: encoded and queued until the sender takes it. publish → post: until the batch is committed (doorbells rung, or the ring\'s tail stored). publish → receive contains publish → post. The first rises: the sender is saturated; the last alone: subscribers.',
                's', perStage(0.5), { log: true })],
            [8, graph('Where the time goes, p99',
                'The same for one in a hundred. source → publish in bursts is the queue that builds up; compare with Queue from feed to sender.',
                's', perStage(0.99), { log: true })],
            [8, graph('Cost of a publish call',
                'Sender time for one snapshot. This is the limit of the rate: 1 µs is a million snapshots a second. Rises with subscribers over RDMA, not over shared memory.',
                's', [
                    line(mean('tapecast_publish_cost_seconds'), 'mean'),
                    line(quantile(0.5, of('tapecast_publish_cost_seconds_bucket')), 'p50'),
                    line(quantile(0.99, of('tapecast_publish_cost_seconds_bucket')), 'p99'),
                ], { table: true })]),
        row('Fan-out of one snapshot to all who received it directly', 9,
            [12, graph('First, mean, last and skew, p50',
                'Of the first snapshot of each 0.1 s that at least two received directly. first: the luckiest subscriber; last: the unluckiest; skew: last − first, what the unluckiest loses against the luckiest. Skew needs subscribers on one clock.',
                's', fanOut(0.5), { log: true, table: true })],
            [12, graph('First, mean, last and skew, p99',
                'The same for one in a hundred of the sampled snapshots. High skew at a low first: too many sleeping subscribers on one host wake one after the other; spread them, or let those that matter spin.',
                's', fanOut(0.99), { log: true, table: true })]),
        row('Jitter', 9,
            [8, graph('Jitter as p99 − p50',
                'How much worse one in a hundred is than the usual: the five worst of the last minute (recorded rule), and all chosen subscribers together. The offset between clocks cancels, but not in all together.',
                's', [
                    line(`${quantile(0.99, delivery)}\n- ${quantile(0.5, delivery)}`, 'all together'),
                    line(worst(5, ofSubscriber('subscriber:tapecast_delivery_seconds:spread')), '{{subscriber}}'),
                ], { log: true, table: true })],
            [8, graph('Jitter since the subscriber started',
                'p99 − p50 of all its deliveries, the five worst. After some hours it hardly moves: the panel beside it shows what happens now.',
                's', [line(worst(5, ofSubscriber('tapecast_subscriber_latency_spread_seconds')), '{{subscriber}}')],
                { log: true, table: true })],
            [8, graph('Interarrival jitter, RFC 3550',
                'Smoothed change of latency from one snapshot to the next (section 6.4.1), the five worst. The offset between clocks cancels. High for all: bursts; for one: its scheduling.',
                's', [line(worst(5, ofSubscriber('tapecast_subscriber_interarrival_jitter_seconds')), '{{subscriber}}')],
                { table: true })]),
        row('Clocks', 8,
            [6, graph('Round trip',
                'Through the control connection, the five longest. Needs no synchronised clock: what one-way figures claim cannot be far below half of it. Empty over shared memory, and until it is known.',
                's', [line(worst(5, ofSubscriber('tapecast_subscriber_round_trip_seconds')), '{{subscriber}}')],
                { table: true })],
            [6, graph('Clock offset',
                'Subscriber\'s clock minus the publisher\'s, the five with the largest either way. 0 on one host; empty until it is known. Drifts: PTP does not run there.',
                's', [line(worst(5, `abs(${ofSubscriber('tapecast_subscriber_clock_offset_seconds')})`), '{{subscriber}}')],
                { table: true })],
            [6, graph('Error of the clock offset',
                'How wrong that offset may be at most. Beyond metrics.clock_error_max_us (50 µs) one-way figures are marked as unreliable.',
                's', [line(worst(5, ofSubscriber('tapecast_subscriber_clock_error_seconds')), '{{subscriber}}')],
                { table: true, thresholds: steps(null, 'transparent', 0.00005, 'orange') })],
            [6, graph('Received before it was published',
                'Deliveries that by the two clocks came before their publication, the five with most; they are in no latency. Not 0: the clocks differ by more than a delivery takes, so this subscriber\'s one-way figures are too small by as much.',
                'cps', [line(worst(5, `sum by (${who}) (${rate(ofSubscriber('tapecast_subscriber_negative_deliveries_total'))})`), '{{subscriber}}')],
                { min: 0, table: true, thresholds: steps(null, 'transparent', 0.001, 'orange') })]),
    ],
});
