// What every dashboard is built from: queries, panels, rows and variables, with the settings that
// must be the same everywhere. `../generate.mjs` says how it is run.

const DATASOURCE = { type: 'prometheus', uid: '${datasource}' };

/** What narrows a series to the chosen publishers; `more` are further matchers. */
export const of = (metric, more = '') =>
    `${metric}{instance=~"$instance",channel=~"$channel"${more && `,${more}`}}`;

/** The same for series that each subscriber has. */
export const ofSubscriber = (metric, more = '') =>
    of(metric, `subscriber=~"$subscriber"${more && `,${more}`}`);

/** Per second, over the interval that fits the scrape and the zoom. */
export const rate = (selector) => `rate(${selector}[$__rate_interval])`;

/** A quantile of a histogram's buckets (a selector of `…_bucket`), summed over the other labels. */
export const quantile = (share, selector, by = '') => quantileOf(share, rate(selector), by);

const quantileOf = (share, rates, by = '') =>
    `histogram_quantile(${share}, sum by (${by ? `${by}, ` : ''}le) (${rates}))`;

const SESSION = 'instance, channel, session, subscriber';

/**
 * Deliveries a second as the objective counts them (a selector of `…_bucket` or `…_count`): without
 * subscribers whose clock is known too badly, and without those that asked to wait.
 */
export const objectiveRate = (selector) => `(${rate(selector)}
and on (${SESSION}) ${ofSubscriber('tapecast_subscriber_one_way_reliable')} == 1
unless on (${SESSION}) ${ofSubscriber('tapecast_subscriber_min_interval_seconds')} > 0)`;

export const objectiveQuantile = (share) =>
    quantileOf(share, objectiveRate(ofSubscriber('tapecast_subscriber_delivery_seconds_bucket')));

/** The mean of a histogram: `select` makes a selector of a metric's name. */
export const mean = (name, select = of) =>
    `sum(${rate(select(`${name}_sum`))}) / sum(${rate(select(`${name}_count`))})`;

/**
 * Only the series that were worst anywhere in the shown time, the same at each point: a plain topk
 * chooses anew at every step and ends in a legend of everybody.
 */
export const worst = (count, expr, by = SESSION) => {
    const peak = /^[a-z_:]+\{[^}]*\}$/.test(expr)
        ? `max_over_time(${expr}[$__range] @ end())`
        : `max_over_time((${expr})[$__range:$__interval] @ end())`;
    return `${expr} and on (${by}) topk(${count}, ${peak})`;
};

/** 0 where all feeds live, 1 where one has ended, 2 where one is silent, whatever the others do. */
export const feedState = `max(2 * ${of('tapecast_feed_silent')} > ${of('tapecast_feed_ended')} or ${of('tapecast_feed_ended')})`;
export const FEED_STATES = { 0: ['live', 'green'], 1: ['ended', 'blue'], 2: ['SILENT', 'red'] };

/** A query that is drawn over time. */
export const line = (expr, legend, more = {}) => ({ expr, legendFormat: legend, range: true, ...more });

/** A query of which only the newest value counts. */
export const now = (expr, legend = '', more = {}) =>
    ({ expr, legendFormat: legend, instant: true, range: false, ...more });

const lettered = (targets) =>
    targets.map((target, place) => ({
        refId: String.fromCharCode(65 + place),
        datasource: DATASOURCE,
        editorMode: 'code',
        ...target,
    }));

/** Limits from which a value is drawn in another colour: `steps(0, 'green', 10, 'red')`. */
export const steps = (...pairs) => ({
    mode: 'absolute',
    steps: pairs.flatMap((value, place) =>
        place % 2 === 0 ? [{ color: pairs[place + 1], value: place === 0 ? null : value }] : []),
});

const PLAIN = steps(null, 'green');

/** Values that have names: `named({ 0: ['DOWN', 'red'], 1: ['up', 'green'] })`. */
export const named = (values) => [{
    type: 'value',
    options: Object.fromEntries(Object.entries(values)
        .map(([value, [text, color]], index) => [value, { text, color, index }])),
}];

const panel = (type, title, description, unit, targets, more) => ({
    type,
    title,
    description,
    datasource: DATASOURCE,
    targets: lettered(targets),
    fieldConfig: {
        defaults: { unit, thresholds: more.thresholds ?? PLAIN, ...more.defaults },
        overrides: more.overrides ?? [],
    },
    options: {},
    ...(more.transformations ? { transformations: more.transformations } : {}),
});

/** One number, coloured by its thresholds. */
export function stat(title, description, unit, target, more = {}) {
    const made = panel('stat', title, description, unit, [target], more);
    made.fieldConfig.defaults = { decimals: more.decimals, mappings: more.mappings ?? [], ...made.fieldConfig.defaults };
    made.options = {
        colorMode: more.mappings || more.thresholds ? 'background' : 'value',
        graphMode: target.instant ? 'none' : 'area',
        justifyMode: 'auto',
        orientation: 'auto',
        reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
        textMode: 'value',
    };
    return made;
}

const SOFT = { cps: 1, short: 1, s: 1e-6, Bps: 1000, bytes: 1024 };

/** Lines over time. `more.table` shows last and highest of each line beside its name. */
export function graph(title, description, unit, targets, more = {}) {
    const made = panel('timeseries', title, description, unit, targets, more);
    made.fieldConfig.defaults = {
        color: { mode: 'palette-classic' },
        min: more.min,
        max: more.max,
        ...made.fieldConfig.defaults,
        custom: {
            drawStyle: 'line',
            lineWidth: 1,
            fillOpacity: more.stack ? 40 : 8,
            showPoints: 'never',
            spanNulls: false,
            // What is 0 most of the time is drawn at the bottom of a small scale, not of a huge one.
            ...(more.log || more.max ? {} : { axisSoftMax: more.soft ?? SOFT[unit] }),
            stacking: { mode: more.stack ? 'normal' : 'none', group: 'A' },
            scaleDistribution: more.log ? { type: 'log', log: 10 } : { type: 'linear' },
            thresholdsStyle: { mode: more.thresholds ? 'dashed' : 'off' },
        },
    };
    made.options = {
        legend: {
            displayMode: more.table ? 'table' : 'list',
            placement: 'bottom',
            showLegend: true,
            calcs: more.table ? ['lastNotNull', 'max'] : [],
            ...(more.table ? { sortBy: 'Max', sortDesc: true } : {}),
        },
        tooltip: { mode: 'multi', sort: 'desc' },
    };
    return made;
}

/**
 * A histogram over time: darker where more observations are. A rate, because a window is longer than
 * a step of the picture: an increase would count each observation in several columns.
 */
export function heatmap(title, description, selector) {
    const target = {
        expr: `sum by (le) (${rate(selector)})`,
        legendFormat: '{{le}}',
        format: 'heatmap',
        range: true,
    };
    const made = panel('heatmap', title, description, 's', [target], {});
    made.options = {
        calculate: false,
        cellGap: 0,
        color: { mode: 'scheme', scheme: 'Turbo', steps: 64, exponent: 0.5, reverse: false },
        filterValues: { le: 1e-9 },
        rowsFrame: { layout: 'le' },
        cellValues: { unit: 'cps' },
        yAxis: { unit: 's', axisPlacement: 'left', decimals: 1 },
        legend: { show: true },
        tooltip: { mode: 'single', yHistogram: true },
    };
    return made;
}

/**
 * A table whose columns are queries over the same labels. `columns` are
 * `{ expr, name, unit, thresholds, mappings }`; `labels` are `[label, heading, properties]`, in order.
 */
export function table(title, description, labels, columns, more = {}) {
    const letter = (place) => String.fromCharCode(65 + place);
    const targets = columns.map(({ expr }) => now(expr, '', { format: 'table' }));
    const value = (place) => (columns.length === 1 ? 'Value' : `Value #${letter(place)}`);
    const named = columns.map((column, place) => [value(place), column.name]);
    const parts = [labels.map(([label]) => label), named.map(([field]) => field)];
    const order = (more.valuesFirst ? parts.reverse() : parts).flat();
    const headings = labels.map(([label, heading]) => [label, heading]);
    const ofLabels = labels.filter(([, , properties]) => properties)
        .map(([, heading, properties]) => ({ matcher: { id: 'byName', options: heading }, properties }));
    const made = panel('table', title, description, 'short', targets, {
        transformations: [
            ...(columns.length > 1 ? [{ id: 'merge', options: {} }] : []),
            { id: 'filterFieldsByName', options: { include: { names: order } } },
            {
                id: 'organize',
                options: {
                    excludeByName: {},
                    indexByName: Object.fromEntries(order.map((name, place) => [name, place])),
                    renameByName: Object.fromEntries([...headings, ...named]),
                },
            },
        ],
        overrides: [...ofLabels, ...columns.map((column) => ({
            matcher: { id: 'byName', options: column.name },
            properties: [
                { id: 'unit', value: column.unit },
                ...(column.width ? [width(column.width)] : []),
                ...(column.decimals === undefined ? [] : [{ id: 'decimals', value: column.decimals }]),
                ...(column.mappings ? [{ id: 'mappings', value: column.mappings }] : []),
                ...(column.thresholds ? [
                    { id: 'thresholds', value: column.thresholds },
                    { id: 'custom.cellOptions', value: { type: 'color-background', mode: 'basic' } },
                ] : []),
            ],
        }))],
    });
    made.fieldConfig.defaults.custom = { align: 'auto', cellOptions: { type: 'auto' }, filterable: true };
    made.options = {
        showHeader: true,
        cellHeight: 'sm',
        sortBy: [{ displayName: more.sortBy, desc: true }],
        footer: { show: false },
    };
    return made;
}

export const width = (pixels) => ({ id: 'custom.width', value: pixels });

/** A heading, and the panels under it, left to right: `row('Feed', 8, [12, panel], [12, panel])`. */
export const row = (title, height, ...placed) => ({ title, height, placed });

function laidOut(rows) {
    const panels = [];
    let top = 0;
    for (const { title, height, placed } of rows) {
        panels.push({ type: 'row', title, collapsed: false, panels: [], gridPos: { x: 0, y: top, w: 24, h: 1 } });
        top += 1;
        let left = 0;
        for (const [width, made] of placed) {
            if (left + width > 24) [left, top] = [0, top + height];
            panels.push({ ...made, gridPos: { x: left, y: top, w: width, h: height } });
            left += width;
        }
        top += height;
    }
    return panels.map((made, place) => ({ id: place + 1, ...made }));
}

const variable = (name, label, query, more = {}) => ({
    type: 'query',
    name,
    label,
    datasource: DATASOURCE,
    definition: query,
    query: { query, refId: name },
    refresh: 2,
    sort: 7,
    regex: '',
    hide: 0,
    multi: true,
    includeAll: true,
    current: { selected: true, text: ['All'], value: ['$__all'] },
    ...more,
});

const publishers = 'instance=~"$instance",channel=~"$channel"';
const variables = {
    datasource: {
        type: 'datasource', name: 'datasource', label: 'Data source', query: 'prometheus', regex: '',
        refresh: 1, hide: 0, multi: false, includeAll: false, current: {},
    },
    instance: variable('instance', 'Publisher', 'label_values(up{job="tapecast"}, instance)'),
    channel: variable('channel', 'Channel',
        'label_values(tapecast_build_info{instance=~"$instance"}, channel)'),
    subscriber: variable('subscriber', 'Subscriber',
        `label_values(tapecast_subscriber_connected{${publishers}}, subscriber)`, { allValue: '.*' }),
};

const links = [
    {
        type: 'dashboards', title: 'tapecast', tags: ['tapecast'], asDropdown: false,
        includeVars: true, keepTime: true, targetBlank: false, icon: 'external link', tooltip: '', url: '',
    },
];

/** A whole dashboard. Variables that no panel uses are left out. */
export function dashboard({ uid, title, description, tags = [], rows }) {
    const panels = laidOut(rows);
    const text = JSON.stringify(panels);
    const used = Object.keys(variables).filter((name) =>
        name !== 'subscriber' || text.includes('$subscriber'));
    return {
        uid,
        title,
        description,
        tags: ['tapecast', ...tags],
        schemaVersion: 39,
        version: 1,
        editable: false,
        graphTooltip: 1,
        refresh: '5s',
        time: { from: 'now-15m', to: 'now' },
        timezone: 'browser',
        fiscalYearStartMonth: 0,
        liveNow: false,
        weekStart: '',
        annotations: {
            list: [{
                name: 'Publisher started',
                type: 'dashboard',
                enable: true,
                hide: false,
                iconColor: 'orange',
                datasource: DATASOURCE,
                expr: 'changes(tapecast_start_time_seconds{instance=~"$instance",channel=~"$channel"}[1m]) > 0',
                titleFormat: '{{channel}} started',
            }],
        },
        links,
        templating: { list: used.map((name) => variables[name]) },
        panels,
    };
}
