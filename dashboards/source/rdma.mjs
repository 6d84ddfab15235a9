// RDMA and RoCE v2: is the fabric the reason? Counters have the names of their files, so each
// driver (mlx5, bnxt_re, rxe) fills its own lines of the same panels.
import { dashboard, graph, line, mean, of, ofSubscriber, quantile, rate, row, stat, steps, worst } from './panels.mjs';

const port = (names, what) => names.map((name) =>
    line(rate(of(`rdma_${name}_total`)), `{{device}}/{{port}} ${what?.[name] ?? name}`));
const sum = (metric) => `sum(${rate(of(metric))})`;
const who = 'instance, channel, session, subscriber';
const occupancy = `max by (channel) (${of('tapecast_rdma_outstanding_work_requests')} / ${of('tapecast_rdma_completion_queue_entries')})`;

export default dashboard({
    uid: 'tapecast-rdma',
    title: 'tapecast / rdma',
    description: 'Queues, work requests, and the counters of the RoCE device. Empty with fabric.kind = "shm".',
    tags: ['verbs'],
    rows: [
        row('Now', 4,
            [6, stat('Ports active', 'The lowest of all ports: 0 is a port that is down. Cable, switch port, `rdma link`.',
                'none', line(`min(${of('rdma_port_active')})`, 'active'),
                { decimals: 0, thresholds: steps(0, 'red', 1, 'green') })],
            [6, stat('Completion queue', 'Work requests that are out, as a share of the completion queue. Near 1 after a failure everything completes at once and must fit: raise rdma.completion_depth.',
                'percentunit', line(occupancy, 'out'), { decimals: 1, thresholds: steps(0, 'green', 0.5, 'yellow', 0.8, 'red') })],
            [6, stat('Work requests a snapshot', 'Below the number of sessions: batches are gathered well. About sessions: each snapshot goes alone, which is right at low rates.',
                'short', line(`${sum('tapecast_rdma_work_requests_total')} / ${sum('tapecast_published_snapshots_total')}`, 'per snapshot'), { decimals: 2 })],
            [6, stat('Sent', 'Payload that was posted to all subscribers. Compare with the line rate: beyond 80 % the last subscriber waits for the wire.',
                'Bps', line(sum('tapecast_rdma_posted_bytes_total'), 'posted'), { decimals: 1 })]),
        row('Congestion: is the network the reason?', 8,
            [5, graph('ECN and CNP',
                'np_ecn_marked: packets that came marked. np_cnp_sent: notifications that this host sent. rp_cnp_handled: notifications that slowed this host down. In session hours handled should be 0: a steady 1 → N fan-out does not congest, something shares the path.',
                'cps', port(['np_ecn_marked_roce_packets', 'np_cnp_sent', 'rp_cnp_handled']), { min: 0, table: true })],
            [4, graph('CNP ignored',
                'Congestion notifications that came and were not obeyed: DCQCN is off at this end (roce_rp). Must be 0. `tapecast-publisher doctor` names the setting.',
                'cps', port(['rp_cnp_ignored']), { min: 0, thresholds: steps(null, 'transparent', 0.001, 'red') })],
            [5, graph('Pause frames',
                'Of PFC by priority, or of the whole link (all). received: the switch stopped this host, and with it every subscriber of that priority; transmitted: this host could not take what came. A steady publisher gets none: a slow subscriber, or another sender, fills the switch. Empty where the driver counts none.',
                'cps', [line(rate(of('rdma_pause_frames_total')), '{{device}}/{{port}} {{direction}} {{priority}}')], { min: 0, table: true })],
            [5, graph('Time paused',
                'Share of the time that pause frames held this host back (received) or the other end (transmitted). 1 % at the open is 10 ms in each second in which nobody gets anything. Counted by mlx5 alone.',
                'percentunit', [line(rate(of('rdma_pause_seconds_total')), '{{device}}/{{port}} {{direction}} {{priority}}')], { min: 0, table: true })],
            [5, graph('Port held back',
                'Ticks that a port had data and could not send (port_xmit_wait), and packets that it threw away. Together with pause frames: the switch held it.',
                'cps', port(['port_xmit_wait', 'port_xmit_discards']), { min: 0, table: true })]),
        row('Retransmission: is somebody losing packets?', 9,
            [12, graph('Retransmits, mlx5',
                'Each costs at least a round trip. packet_seq_err and out_of_sequence: loss on the way; local_ack_timeout_err and roce_adp_retrans_to: an acknowledgement did not come, one of them is a page; roce_adp_retrans: adaptive retransmission. Any sustained rate: ports, cables, PFC and ECN of the path.',
                'cps', port(['packet_seq_err', 'out_of_sequence', 'local_ack_timeout_err', 'implied_nak_seq_err', 'roce_adp_retrans', 'roce_adp_retrans_to', 'roce_slow_restart']),
                { min: 0, table: true })],
            [6, graph('Retransmits, bnxt_re',
                'to_retransmits: time-outs; seq_err_naks_rcvd: loss on the way; oos_drop_count: out of order here. Read as the mlx5 panel; empty with other drivers.',
                'cps', port(['to_retransmits', 'seq_err_naks_rcvd', 'oos_drop_count']), { min: 0 })],
            [6, graph('Retransmits, Soft-RoCE',
                'completer_retry_err and rcvd_seq_err: this end had to send again; out_of_seq_request, duplicate_request: the other end did. A few in a burst are normal in software; empty with other drivers.',
                'cps', port(['completer_retry_err', 'rcvd_seq_err', 'out_of_seq_request', 'duplicate_request']), { min: 0 })],
            [12, graph('Receiver not ready',
                'Somebody that this card sends to had no receive posted. Credit makes that impossible for subscribers, stopped ones included: another program on the card, or a defect. rnr_nak_retry_err and out_of_buffer: mlx5; rnr_naks_rcvd: bnxt_re; rcvd_rnr_err: Soft-RoCE.',
                'cps', [
                    line(`sum by (channel) (${rate(of('tapecast_rdma_receiver_not_ready_total'))})`, '{{channel}} found so by the publisher'),
                    ...port(['rnr_nak_retry_err', 'out_of_buffer', 'rnr_naks_rcvd', 'rcvd_rnr_err', 'send_rnr_err']),
                ],
                { min: 0, table: true, thresholds: steps(null, 'transparent', 0.001, 'red') })],
            [12, graph('Given up, and refused',
                'retries_exceeded: a subscriber is counted as gone after (rdma.retry_count + 1) × rdma.timeout, 0.47 s as shipped. access errors: a subscriber wrote where it may not; find out who.',
                'cps', port(['req_transport_retries_exceeded', 'req_rnr_retries_exceeded', 'req_remote_access_errors', 'max_retry_exceeded', 'retry_exceeded_err', 'retry_rnr_exceeded_err']),
                { min: 0, table: true, thresholds: steps(null, 'transparent', 0.001, 'red') })]),
        row('Queues: is the publisher the reason?', 8,
            [12, graph('Completion queue depth', 'Outstanding work requests, most completions found at once, and the depth. They must never meet.',
                'short', [
                    line(`sum by (channel) (${of('tapecast_rdma_outstanding_work_requests')})`, '{{channel}} outstanding'),
                    line(`max by (channel) (${of('tapecast_rdma_completion_queue_high_water')})`, '{{channel}} high water'),
                    line(`max by (channel) (${of('tapecast_rdma_completion_queue_entries')})`, '{{channel}} depth'),
                ], { min: 0 })],
            [12, graph('Queue pairs by state', 'In health all are rts. err: a subscriber is gone or refused a write; its session is taken out within a moment.',
                'short', [
                    line(`sum by (state) (${of('tapecast_rdma_queue_pairs')})`, '{{state}}'),
                ], { min: 0 })],
            [12, graph('Credit stalls', 'Snapshots that a session had no credit for when they were published: its receiver or its network is slower than the feed just then.',
                'cps', [
                    line(`topk(8, sum by (subscriber) (${rate(of('tapecast_subscriber_credit_stalls_total'))}))`, '{{subscriber}}'),
                ], { min: 0, table: true })],
            [12, graph('Fullest send queue', 'Outstanding work requests of the session that has most, and the room of each (rdma.send_depth). At the room a session is not posted to and conflates: it does not acknowledge fast enough. Beside them the eight sessions whose queue was ever fullest.',
                'short', [
                    line(`max by (channel) (${of('tapecast_rdma_send_queue_outstanding_max')})`, '{{channel}} fullest'),
                    line(`max by (channel) (${of('tapecast_rdma_send_queue_entries')})`, '{{channel}} room'),
                    line(`topk(8, max by (subscriber) (${of('tapecast_subscriber_send_queue_outstanding')}))`, '{{subscriber}}'),
                    line(`topk(8, max by (subscriber) (${of('tapecast_subscriber_send_queue_high_water')}))`, '{{subscriber}} high water'),
                ], { min: 0, table: true })],
            [12, graph('Work requests, doorbells, completions', 'Work requests far above doorbells: batches are posted well. Completions far below work requests: only each rdma.signal_every-th is signaled. Stray completions are of sessions that have ended.',
                'cps', [
                    line(sum('tapecast_rdma_work_requests_total'), 'work requests'), line(sum('tapecast_rdma_doorbells_total'), 'doorbells'),
                    line(sum('tapecast_rdma_completions_total'), 'completions'), line(sum('tapecast_rdma_stray_completions_total'), 'stray completions'),
                ], { min: 0 })],
            [12, graph('Per published snapshot', 'Work requests and doorbells for one snapshot, all sessions together.',
                'short', [
                    line(`${sum('tapecast_rdma_work_requests_total')} / ${sum('tapecast_published_snapshots_total')}`, 'work requests'),
                    line(`${sum('tapecast_rdma_doorbells_total')} / ${sum('tapecast_published_snapshots_total')}`, 'doorbells'),
                ], { min: 0 })]),
        row('Wire', 8,
            [8, graph('Post to completion', 'Doorbell to the completion that retires it: a round trip, and the time in which pages are held. Rises with retransmission and congestion.',
                's', [
                    line(mean('tapecast_post_to_completion_seconds'), 'mean'),
                    line(quantile(0.5, of('tapecast_post_to_completion_seconds_bucket')), 'p50'),
                    line(quantile(0.99, of('tapecast_post_to_completion_seconds_bucket')), 'p99'),
                ], { log: true })],
            [8, graph('Port bytes', 'All traffic of the port, whoever sends it. Much more than Sent: somebody else uses the port.',
                'Bps', [
                    line(rate(of('rdma_port_xmit_bytes_total')), '{{device}}/{{port}} sent'),
                    line(rate(of('rdma_port_rcv_bytes_total')), '{{device}}/{{port}} received'),
                ], { min: 0 })],
            [8, graph('Packets, Soft-RoCE and bnxt_re', 'Where the driver has no port counters in bytes. Packets of all queue pairs; empty with mlx5.',
                'cps', port(['sent_pkts', 'rcvd_pkts', 'tx_pkts', 'rx_pkts']), { min: 0 })],
            [12, graph('Link faults', 'Symbol errors, links that went down, receive errors: a cable or a transceiver. Change it after hours; in hours move the traffic.',
                'cps', port(['port_symbol_error', 'port_link_downed', 'port_rcv_errors', 'link_downed'], {
                    port_symbol_error: 'symbol_error', port_link_downed: 'link_downed', port_rcv_errors: 'port_rcv_errors',
                }), { min: 0, thresholds: steps(null, 'transparent', 0.001, 'red') })],
            [12, graph('Delivery p99, eight slowest', 'Publish to receive. One subscriber high with retransmits above: its path. All: the port or the publisher.',
                's', [line(worst(8, quantile(0.99, ofSubscriber('tapecast_subscriber_delivery_seconds_bucket'), who)), '{{subscriber}}')],
                { log: true, table: true })]),
    ],
});
