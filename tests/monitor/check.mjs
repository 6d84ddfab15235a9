#!/usr/bin/env node
// Runs every query of every dashboard, and every rule, against a real Prometheus: none may fail, be
// empty, name a metric that is not there, or a label that its legend lacks.
//
//   node tests/monitor/check.mjs --prometheus URL --instance HOST:PORT [--wait SECONDS]
//       [--fabric shm|verbs] [--sessions 64]
//
// Waits until all is there, at most so long; then says what still is not.
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { absentWith, builtIn, metricsIn, queriesOf, substitute } from './queries.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({ options: {
    prometheus: { type: 'string' }, instance: { type: 'string' }, wait: { type: 'string', default: '90' },
    fabric: { type: 'string', default: 'shm' }, sessions: { type: 'string', default: '64' },
} });
const values = {
    datasource: 'prometheus', instance: options.instance.replace(/[.]/g, '\\\\.'), channel: '.*',
    subscriber: '.*', ...builtIn(60),
};
const folder = join(here, '..', '..', 'dashboards');
const dashboards = readdirSync(folder).filter((name) => name.endsWith('.json'))
    .map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')));
const isAbsent = absentWith(readFileSync(join(here, `absent-with-${options.fabric}.txt`), 'utf8'));

/** What the load must have brought about for the panels to be worth looking at. */
const conditions = {
    'the publisher is ready': 'tapecast_ready == 1',
    [`${options.sessions} subscribers are attached`]: `tapecast_sessions == ${options.sessions}`,
    'somebody lags': 'max(tapecast_subscriber_lag_seconds) > 0.01',
    'somebody conflates': 'sum(rate(tapecast_subscriber_conflated_snapshots_total[10s])) > 0',
    'snapshots of the fan-out were sampled': 'sum(rate(tapecast_fan_out_last_seconds_count[10s])) > 0',
};

async function ask(path, words = {}) {
    const answer = await fetch(`${options.prometheus}/api/v1/${path}?${new URLSearchParams(words)}`);
    const json = await answer.json();
    if (json.status !== 'success') throw new Error(json.error);
    return json.data;
}

const series = async (query) => {
    const data = await ask('query', { query });
    // A scalar is a value, too.
    return data.resultType === 'scalar' ? [{ metric: {}, value: data.result }] : data.result;
};

const isNumber = ({ value }) => value[1] !== 'NaN';

async function faultOf({ where, expr, target }) {
    try {
        const found = await series(substitute(expr, values));
        // An annotation marks what is rare, and in health no alert fires.
        const mayBeEmpty = !target || metricsIn(expr).some((name) => isAbsent(name) || name === 'ALERTS');
        if (!found.some(isNumber)) return mayBeEmpty ? null : `${where}: no data`;
        if (!target) return null;
        const labels = [...(target.legendFormat ?? '').matchAll(/\{\{\s*(\w+)\s*\}\}/g)].map((one) => one[1]);
        const lacking = labels.filter((label) => !found.every(({ metric }) => label in metric));
        return lacking.length ? `${where}: the legend names ${lacking.join(', ')}, which no series has` : null;
    } catch (error) {
        return `${where}: ${error.message}`;
    }
}

async function faultsOfNames(queries) {
    const known = new Set(await ask('label/__name__/values'));
    const rules = (await ask('rules')).groups.flatMap((group) => group.rules);
    const named = [...queries, ...rules.map(({ name, query }) => ({ where: name, expr: query }))];
    // No alert fires in a healthy run, and then Prometheus has no series of that name.
    known.add('ALERTS');
    const faults = named.flatMap(({ where, expr }) => metricsIn(expr)
        .filter((name) => !known.has(name) && !isAbsent(name))
        .map((name) => `${where}: no metric is called ${name}`));
    for (const { name, type, query, health, lastError } of rules) {
        if (health !== 'ok') faults.push(`rule ${name}: ${health} ${lastError ?? ''}`);
        const mayBeEmpty = type === 'alerting' || metricsIn(query).some(isAbsent);
        if (!mayBeEmpty && !(await series(name)).length) faults.push(`rule ${name}: records nothing`);
    }
    return faults;
}

async function faultsOfVariables() {
    const faults = [];
    for (const { title, templating } of dashboards) {
        for (const { name, type, definition } of templating.list) {
            if (type !== 'query') continue;
            const [, selector, label] = definition.match(/^label_values\((.*), (\w+)\)$/);
            const found = await ask(`label/${label}/values`, { 'match[]': substitute(selector, values) });
            if (!found.length) faults.push(`${title}: variable ${name} has no values`);
        }
    }
    return faults;
}

async function allFaults() {
    const faults = [];
    for (const [name, expr] of Object.entries(conditions)) {
        if (!(await series(expr)).length) faults.push(`the load: not yet that ${name}`);
    }
    const queries = dashboards.flatMap(queriesOf);
    // Until then nothing else is worth asking.
    if (faults.length) return { queries: queries.length, faults };
    for (const query of queries) faults.push(await faultOf(query));
    faults.push(...await faultsOfNames(queries), ...await faultsOfVariables());
    return { queries: queries.length, faults: faults.filter(Boolean) };
}

const until = Date.now() + Number(options.wait) * 1000;
let last;
do {
    last = await allFaults().catch((error) => ({ queries: 0, faults: [error.message] }));
    // Between two looks, so that the scrapes get the processor, too.
    if (last.faults.length) await new Promise((looked) => setTimeout(looked, 1000));
} while (last.faults.length && Date.now() < until);
last.faults.forEach((fault) => console.error(`check: ${fault}`));
console.log(`check: ${last.queries} queries of ${dashboards.length} dashboards, ${last.faults.length} faults`);
process.exit(last.faults.length ? 1 : 0);
