#!/usr/bin/env node
// What can be said about dashboards, rules and runbook without running anything.
//
//   node tests/monitor/lint.mjs [--names FILE]
//
// FILE is the text of a /metrics endpoint: every metric that is named must be in it, but for those
// of absent-with-shm.txt. With promtool at hand, it parses every expression.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
    absentWith, builtIn, metricsIn, panelsOf, queriesOf, rulesIn, substitute, variablesIn,
} from './queries.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = process.env.LINT_ROOT ?? join(here, '..', '..');
const read = (...path) => readFileSync(join(root, ...path), 'utf8');
const complaints = [];
const complain = (where, what) => complaints.push(`${where}: ${what}`);

const files = readdirSync(join(root, 'dashboards')).filter((name) => name.endsWith('.json'));
const dashboards = files.map((name) => ({ name, dashboard: JSON.parse(read('dashboards', name)) }));
const rules = readdirSync(join(root, 'configs/prometheus'))
    .filter((name) => name.endsWith('.rules.yml'))
    .flatMap((name) => rulesIn(read('configs/prometheus', name)));

function lintDashboard(name, dashboard) {
    const where = `${name}`;
    if (dashboard.editable !== false) complain(where, 'must not be editable');
    if (!(dashboard.schemaVersion >= 36)) complain(where, 'schemaVersion must be 36 or later');
    if (!dashboard.uid || !dashboard.title || !dashboard.description) complain(where, 'lacks uid, title or description');
    if (!dashboard.tags?.includes('tapecast')) complain(where, 'lacks the tag tapecast, which links the dashboards');
    if (!dashboard.links?.length) complain(where, 'links to no other dashboard');
    lintVariables(where, dashboard);
    lintPlaces(where, dashboard);
    for (const panel of panelsOf(dashboard)) lintPanel(`${name}: ${panel.title}`, panel);
}

function lintVariables(where, dashboard) {
    const list = dashboard.templating.list;
    const defined = list.map((variable) => variable.name);
    for (const wanted of ['datasource', 'instance', 'channel']) {
        if (!defined.includes(wanted)) complain(where, `has no variable ${wanted}`);
    }
    const outside = { ...dashboard, templating: null };
    const used = new Set([
        ...variablesIn(JSON.stringify(outside)),
        ...list.flatMap((variable) => variablesIn(JSON.stringify([variable.query, variable.datasource]))),
    ]);
    const known = [...defined, ...Object.keys(builtIn(1)), '__all'];
    for (const name of used) if (!known.includes(name)) complain(where, `undefined variable $${name}`);
    for (const name of defined) if (!used.has(name)) complain(where, `unused variable $${name}`);
}

const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

function lintPlaces(where, dashboard) {
    const all = dashboard.panels;
    const ids = all.map((panel) => panel.id);
    if (new Set(ids).size !== ids.length) complain(where, 'panel ids are not unique');
    const titles = panelsOf(dashboard).map((panel) => panel.title);
    for (const title of new Set(titles)) {
        if (titles.filter((other) => other === title).length > 1) complain(where, `two panels are called ${title}`);
    }
    all.forEach((panel, place) => {
        const { x, y, w, h } = panel.gridPos;
        if (x < 0 || y < 0 || w < 1 || h < 1 || x + w > 24) complain(where, `${panel.title} is outside of the grid`);
        for (const other of all.slice(place + 1)) {
            if (overlap(panel.gridPos, other.gridPos)) complain(where, `${panel.title} covers ${other.title}`);
        }
    });
}

function lintPanel(where, panel) {
    if (!panel.title) complain(where, 'has no title');
    if ((panel.description ?? '').length < 40) complain(where, 'has no description that says what to do');
    if (!panel.fieldConfig?.defaults?.unit) complain(where, 'has no unit');
    if (!panel.targets?.length) complain(where, 'has no query');
    for (const source of [panel.datasource, ...panel.targets.map((target) => target.datasource)]) {
        if (source?.uid !== '${datasource}') complain(where, 'must use the variable datasource');
    }
    const letters = panel.targets.map((target) => target.refId);
    if (new Set(letters).size !== letters.length) complain(where, 'refIds are not unique');
    for (const target of panel.targets) lintQuery(`${where}: ${target.refId}`, panel, target);
}

function lintQuery(where, panel, { expr, legendFormat, format, instant }) {
    const ranges = [...expr.matchAll(/\[([^\]]+)\]/g)].map((found) => found[1]);
    for (const range of ranges) {
        if (!/^\$__(rate_interval|range)(:\$__interval)?$/.test(range)) {
            complain(where, `takes [${range}]: use $__rate_interval, or $__range for a total`);
        }
    }
    for (const name of metricsIn(expr)) {
        if (/_(total|bucket|sum|count)$/.test(name)) {
            const bare = new RegExp(`(?<!(?:rate|increase|irate)\\(\\s*)\\b${name}\\b`);
            if (bare.test(expr)) complain(where, `${name} is a counter: only under rate or increase`);
        }
        if (!/^(up|ALERTS)$/.test(name) && !expr.includes(`${name}{instance=~"$instance",channel=~"$channel"`)) {
            complain(where, `${name} is not narrowed to $instance and $channel`);
        }
    }
    if (/histogram_quantile/.test(expr) && !/_bucket/.test(expr)) complain(where, 'takes a quantile of no buckets');
    if (panel.type === 'timeseries' && !legendFormat) complain(where, 'has no legend');
    if (panel.type === 'table' && !(format === 'table' && instant)) complain(where, 'must be an instant table');
}

/** Every expression as a rule of its own, for promtool to parse. */
function parseAll(expressions) {
    const values = { datasource: 'x', instance: '.*', channel: '.*', subscriber: '.*', ...builtIn(60) };
    const folder = mkdtempSync(join(tmpdir(), 'tapecast-lint-'));
    try {
        const written = expressions.map(({ where, expr }, place) => {
            const text = JSON.stringify(substitute(expr, values));
            return `      - {record: "q${place}", labels: {where: ${JSON.stringify(where)}}, expr: ${text}}`;
        });
        const file = join(folder, 'all.yml');
        writeFileSync(file, `groups:\n  - name: all\n    rules:\n${written.join('\n')}\n`);
        execFileSync('promtool', ['check', 'rules', '--lint=none', file], { stdio: 'pipe' });
    } catch (error) {
        if (error.code === 'ENOENT') return console.log('lint: promtool is missing, expressions are not parsed');
        complain('promtool', `${error.stdout ?? ''}${error.stderr ?? error.message}`.trim());
    } finally {
        rmSync(folder, { recursive: true });
    }
}

function lintRules() {
    const runbook = read('dashboards', 'RUNBOOK.md');
    const entries = [...runbook.matchAll(/^### (\S+)$/gm)].map((found) => found[1]);
    const alerts = rules.filter((rule) => rule.kind === 'alert');
    for (const { name, text } of alerts) {
        for (const wanted of ['severity', 'summary', 'description', 'runbook_url']) {
            if (!new RegExp(`^\\s+${wanted}:`, 'm').test(text)) complain(name, `has no ${wanted}`);
        }
        if (!/severity: (page|ticket|info)$/m.test(text)) complain(name, 'its severity is not page, ticket or info');
        if (!text.includes(`dashboards/RUNBOOK.md#${name.toLowerCase()}\n`)) complain(name, 'its runbook_url is not its entry');
        if (!entries.includes(name)) complain(name, 'has no entry in dashboards/RUNBOOK.md');
    }
    for (const entry of entries) {
        if (!alerts.some((alert) => alert.name === entry)) complain('dashboards/RUNBOOK.md', `${entry} is no alert`);
        const body = runbook.split(`### ${entry}\n`)[1].split(/^##/m)[0];
        for (const part of ['Meaning', 'First look', 'Likely causes', 'Do', 'Wake']) {
            if (!body.includes(`**${part}.**`)) complain('dashboards/RUNBOOK.md', `${entry} lacks **${part}.**`);
        }
    }
    lintTests(alerts);
}

/** Each alert is tested both firing and silent. */
function lintTests(alerts) {
    const folder = join(root, 'tests/monitor/rules');
    const tests = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8')).join('\n');
    for (const { name } of alerts) {
        const cases = [...tests.matchAll(new RegExp(`alertname: ${name}\\n\\s+exp_alerts:(.*)`, 'g'))];
        if (!cases.some((found) => found[1].trim() === '')) complain(name, 'no test in rules/ makes it fire');
        if (!cases.some((found) => found[1].trim() === '[]')) complain(name, 'no test in rules/ keeps it silent');
    }
}

function sourcesBelow(folder) {
    return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => entry.isDirectory()
        ? sourcesBelow(join(folder, entry.name))
        : entry.name.endsWith('.rs') ? [readFileSync(join(folder, entry.name), 'utf8')] : []);
}

/** Metrics as the publisher's source names them, also those that only some fabric has. */
function lintSpelling(expressions) {
    const source = sourcesBelow(join(root, 'publisher/src')).join('\n');
    const written = new Set([...source.matchAll(/"((?:tapecast|rdma)_[a-z0-9_]+)"/g)].map((found) => found[1]));
    const counters = readFileSync(join(here, 'device-counters.txt'), 'utf8').replace(/^#.*$/gm, '')
        .split(/\s+/).filter(Boolean);
    const recorded = rules.filter((rule) => rule.kind === 'record').map((rule) => rule.name);
    const known = new Set([
        ...written, ...counters.map((name) => `rdma_${name}_total`), ...recorded, 'up', 'ALERTS',
        ...['open_fds', 'max_fds', 'resident_memory_bytes', 'virtual_memory_bytes'].map((name) => `process_${name}`),
    ]);
    for (const { where, expr } of expressions) {
        for (const name of metricsIn(expr)) {
            const whole = name.replace(/_(bucket|sum|count)$/, '');
            if (!known.has(name) && !written.has(whole)) complain(where, `nothing writes a metric ${name}`);
        }
    }
}

/** Metrics as a publisher has shown them. */
function lintNames(expressions, file) {
    const text = readFileSync(file, 'utf8');
    const real = new Set(text.split('\n').filter((row) => row && !row.startsWith('#'))
        .map((row) => row.split(/[{\s]/)[0]));
    const recorded = new Set(rules.filter((rule) => rule.kind === 'record').map((rule) => rule.name));
    const absent = absentWith(readFileSync(join(here, 'absent-with-shm.txt'), 'utf8'));
    const known = (name) => real.has(name) || recorded.has(name) || absent(name) || /^(up|ALERTS)$/.test(name);
    for (const { where, expr } of expressions) {
        for (const name of metricsIn(expr)) if (!known(name)) complain(where, `no metric is called ${name}`);
    }
}

for (const { name, dashboard } of dashboards) lintDashboard(name, dashboard);
const uids = dashboards.map(({ dashboard }) => dashboard.uid);
if (new Set(uids).size !== uids.length) complain('dashboards', 'uids are not unique');
lintRules();
const expressions = [
    ...dashboards.flatMap(({ dashboard }) => queriesOf(dashboard)),
    ...rules.map(({ name, expr }) => ({ where: name, expr })),
];
parseAll(expressions);
lintSpelling(expressions);
const names = process.argv.indexOf('--names');
if (names > 0) lintNames(expressions, process.argv[names + 1]);

complaints.forEach((complaint) => console.error(`lint: ${complaint}`));
console.log(`lint: ${dashboards.length} dashboards, ${rules.length} rules, ${expressions.length} expressions, ${complaints.length} complaints`);
process.exit(complaints.length ? 1 : 0);
