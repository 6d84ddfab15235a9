// Is it healthy? One glance at the open.
import {
    FEED_STATES, dashboard, feedState, graph, line, named, now, objectiveQuantile, of, ofSubscriber, quantile, rate,
    row, stat, steps, table, width, worst,
} from './panels.mjs';

const firing = (more) => `ALERTS{alertstate="firing",alertname=~"Tapecast.*"${more}}`;
const share = (ofAll) => `sum by (instance, channel, session, subscriber) (${rate(ofSubscriber('tapecast_subscriber_conflated_snapshots_total'))})
/ (${ofAll('delivered')} + ${ofAll('conflated')} > 0)`;
const bySubscriber = (what) => `sum by (instance, channel, session, subscriber) (${rate(ofSubscriber(`tapecast_subscriber_${what}_snapshots_total`))})`;
export const conflatedShare = share(bySubscriber);

const severity = named({ 3: ['page', 'red'], 2: ['ticket', 'orange'], 1: ['info', 'blue'] });
const yes = named({ 0: ['NO', 'red'], 1: ['yes', 'green'] });

export default dashboard({
    uid: 'tapecast-overview',
    title: 'tapecast / overview',
    description: 'Is the publisher healthy, does everybody get what they pay for, and who does not?',
    rows: [
        row('Healthy?', 4,
            [3, stat('Pages firing',
                'Alerts with severity page that fire now. Not 0: read the table of firing alerts below, and its entry in the runbook.',
                'none', now(`count(${firing(',severity="page"')}) or vector(0)`),
                { decimals: 0, thresholds: steps(0, 'green', 1, 'red') })],
            [3, stat('Scraped',
                'Whether Prometheus reaches every chosen publisher. NO: one is dead, or its [metrics] address is not reachable. Look at `systemctl status tapecast-publisher` on its host.',
                'none', now('min(up{job="tapecast",instance=~"$instance"})'), { mappings: yes })],
            [3, stat('Ready',
                'The feed was let go and is heard, and the sender beats. NO: it waits for subscribers (--wait-for) or for its input, the feed is silent (see Feed), or the sender is stuck. `curl …/readyz` says which.',
                'none', now(`min(${of('tapecast_ready')})`), { mappings: yes })],
            [3, stat('Feed',
                'The worst of the chosen publishers. live: heard within source.silent_after_s. SILENT: connected and nothing comes, so every book may be old. ended: the source is over, books are marked as ended.',
                'none', now(feedState), { mappings: named(FEED_STATES) })],
            [3, stat('Sessions',
                'Subscribers attached. Fewer than expected: compare with the table of subscribers, which keeps those that have left for metrics.departed_s.',
                'none', line(`sum(${of('tapecast_sessions')})`, 'sessions'), { decimals: 0 })],
            [3, stat('Delivery p99',
                'Publish to receive, 99 of 100 deliveries of the last interval, all subscribers but those with an unreliable clock or --min-interval, as the alert has it. Yellow at half the objective, red at it (1 ms, tapecast-recording.rules.yml). Red: see the dashboard of latency for the stage and the subscriber.',
                's', line(objectiveQuantile(0.99), 'p99'),
                { decimals: 1, thresholds: steps(0, 'green', 0.0005, 'yellow', 0.001, 'red') })],
            [3, stat('Lost',
                'Snapshots of the shown time that neither reached a subscriber nor were replaced by a newer one. Must be 0 always. Otherwise keep the logs of both ends and call whoever maintains tapecast.',
                'none', now(`sum(increase(${of('tapecast_lost_snapshots_total')}[$__range]))`),
                { decimals: 0, thresholds: steps(0, 'green', 0.001, 'red') })],
            [3, stat('Feed gaps',
                'Gaps that the feed itself had in the shown time. Books are suspect from a gap until the feed has repeated them: tell the desks, then ask the venue or the line provider.',
                'none', now(`sum(increase(${of('tapecast_feed_gaps_total')}[$__range]))`),
                { decimals: 0, thresholds: steps(0, 'green', 0.001, 'red') })]),
        row('Everybody', 8,
            [12, graph('Snapshots',
                'Published by the sender, and what became of them at the mean subscriber: delivered, or conflated (replaced by a newer one before it was read). Subscribers to all instruments that keep up get what is published. Conflated rises: somebody does not keep up, see below.',
                'cps', [
                    line(`sum(${rate(of('tapecast_published_snapshots_total'))})`, 'published'),
                    line(`sum(${rate(of('tapecast_delivered_snapshots_total'))}) / sum(${of('tapecast_sessions')})`, 'delivered, mean'),
                    line(`sum(${rate(of('tapecast_conflated_snapshots_total'))}) / sum(${of('tapecast_sessions')})`, 'conflated, mean'),
                ], { min: 0 })],
            [12, graph('Delivery latency',
                'Publish to receive over all subscribers, whatever their clocks. All percentiles rise together: the host or the sender. Only the highest: single subscribers, see who below.',
                's', [
                    line(quantile(0.5, of('tapecast_subscriber_delivery_seconds_bucket')), 'p50'),
                    line(quantile(0.99, of('tapecast_subscriber_delivery_seconds_bucket')), 'p99'),
                    line(quantile(0.999, of('tapecast_subscriber_delivery_seconds_bucket')), 'p99.9'),
                ], { log: true, thresholds: steps(null, 'transparent', 0.001, 'red') })]),
        row('Who is worst?', 9,
            [7, graph('Furthest behind',
                'The five subscribers that were furthest behind in the shown time, as time since the oldest snapshot that they have not read. Beyond 200 ms (lag.soft_ms) they count as lagging. Look at that host first: CPU, swap, a debugger.',
                's', [line(worst(5, ofSubscriber('tapecast_subscriber_lag_seconds')), '{{subscriber}}')],
                { min: 0, table: true, thresholds: steps(null, 'transparent', 0.2, 'orange') })],
            [7, graph('Most conflated',
                'Share of snapshots that a subscriber got only in a newer version, the five highest. Those with --min-interval conflate by intent. Others: they are slower than the feed, give them a core or fewer instruments.',
                'percentunit', [line(worst(5, conflatedShare), '{{subscriber}}')],
                { min: 0, max: 1, table: true, thresholds: steps(null, 'transparent', 0.1, 'orange') })],
            [10, table('Firing alerts',
                'What fires now. Each name has an entry in dashboards/RUNBOOK.md: meaning, first look, likely causes, what to do.',
                [['alertname', 'Alert', [width(260)]], ['channel', 'Channel'], ['subscriber', 'Subscriber']],
                [{
                    expr: `3 * ${firing(',severity="page"')} or 2 * ${firing(',severity="ticket"')} or ${firing(',severity="info"')}`,
                    name: 'Severity', unit: 'none', width: 80, mappings: severity, thresholds: steps(null, 'transparent'),
                }], { sortBy: 'Severity', valuesFirst: true })]),
        row('Room', 7,
            [6, graph('Feed messages',
                'Messages read from the feed. It falls to 0 in session hours: see Feed above, then the line.',
                'cps', [line(`sum by (channel) (${rate(of('tapecast_feed_messages_total'))})`, '{{channel}}')],
                { min: 0 })],
            [6, graph('Sender busy',
                'Share of the time in which the sender did something; of several publishers of a channel the busiest. Beyond 90 % it cannot follow a burst: fewer instruments, fewer levels, a faster core, sender.idle = "spin".',
                'percentunit', [line(`max by (channel) (${rate(of('tapecast_sender_busy_seconds_total'))})`, '{{channel}}')],
                { min: 0, max: 1, thresholds: steps(null, 'transparent', 0.9, 'red') })],
            [6, graph('Queue from feed to sender',
                'How full the queue is, also while a lossless session stops the sender. Full: the feed waits (nothing is lost, everything is late).',
                'percentunit', [line(`max by (channel) (${of('tapecast_queue_items')} / ${of('tapecast_queue_capacity_items')})`, '{{channel}}')],
                { min: 0, max: 1, thresholds: steps(null, 'transparent', 0.8, 'red') })],
            [6, graph('Pool pages free',
                'Share of the pool that is free, and the lowest since the start. Near 0 the feed waits for pages: over RDMA a subscriber that does not acknowledge holds them.',
                'percentunit', [
                    line(`min by (channel) (${of('tapecast_pool_free_pages')} / ${of('tapecast_pool_pages')})`, '{{channel}}'),
                    line(`min by (channel) (${of('tapecast_pool_free_pages_min')} / ${of('tapecast_pool_pages')})`, '{{channel}} lowest'),
                ], { min: 0, max: 1, thresholds: steps(null, 'red', 0.1, 'transparent') })]),
    ],
});
