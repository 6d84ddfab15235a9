#!/usr/bin/env node
// Plants one mistake after another and expects the linter to name it.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const alerts = 'configs/prometheus/tapecast-alerts.rules.yml';
const overview = 'dashboards/overview.json';

const onPanels = (change) => (text) => {
    const dashboard = JSON.parse(text);
    change(dashboard.panels.filter((panel) => panel.type !== 'row'), dashboard);
    return JSON.stringify(dashboard);
};
const expr = (change) => onPanels(([first]) => { first.targets[0].expr = change; });
const narrowed = '{instance=~"$instance",channel=~"$channel"}';

// What is planted, in which file, and what must be said of it.
const mistakes = [
    ['a panel without a description', overview, onPanels(([one]) => { delete one.description; }), 'has no description'],
    ['a panel without a unit', overview, onPanels(([one]) => { delete one.fieldConfig.defaults.unit; }), 'has no unit'],
    ['a data source of its own', overview, onPanels(([one]) => { one.datasource.uid = 'abc'; }), 'must use the variable datasource'],
    ['two panels in one place', overview, onPanels(([one, two]) => { two.gridPos = one.gridPos; }), 'covers'],
    ['two panels with one id', overview, onPanels(([one, two]) => { two.id = one.id; }), 'ids are not unique'],
    ['an editable dashboard', overview, onPanels((_, all) => { all.editable = true; }), 'must not be editable'],
    ['a variable that nobody uses', overview, onPanels((_, all) => {
        all.templating.list.push({ ...all.templating.list[1], name: 'extra', query: {} });
    }), 'unused variable $extra'],
    ['a variable that is not there', overview, expr('up{instance=~"$desk"}'), 'undefined variable $desk'],
    ['a bare counter', overview, expr(`tapecast_batches_total${narrowed}`), 'is a counter'],
    ['a window of its own', overview, expr(`rate(tapecast_batches_total${narrowed}[5m])`), 'takes [5m]'],
    ['a metric for all publishers', overview, expr('tapecast_ready'), 'is not narrowed'],
    ['a metric that nobody writes', overview, expr(`tapecast_redy${narrowed}`), 'nothing writes a metric tapecast_redy'],
    ['an expression that is none', overview, expr(`sum(tapecast_ready${narrowed}`), 'unclosed left parenthesis'],
    ['an alert without an entry', 'dashboards/RUNBOOK.md', (text) => text.replace('### TapecastFeedGap', '### Gap'), 'has no entry'],
    ['an entry without an alert', 'dashboards/RUNBOOK.md', (text) => `${text}\n### TapecastNone\n`, 'TapecastNone is no alert'],
    ['an alert without a severity', alerts, (text) => text.replace('          severity: page\n', ''), 'has no severity'],
    ['an alert without a test', 'tests/monitor/rules/feed.test.yml', (text) => text.replaceAll('TapecastFeedGap', 'Gap'), 'makes it fire'],
];

const folder = mkdtempSync(join(tmpdir(), 'tapecast-lint-'));
const missed = [];
try {
    for (const part of ['dashboards', 'configs', 'tests/monitor/rules', 'publisher/src']) {
        cpSync(join(root, part), join(folder, part), { recursive: true });
    }
    const lint = () => spawnSync(process.execPath, [join(here, 'lint.mjs')],
        { env: { ...process.env, LINT_ROOT: folder }, encoding: 'utf8' });
    if (lint().status !== 0) missed.push('complains about what is right');
    const canParse = !spawnSync('promtool', ['--version']).error;
    for (const [name, file, plant, expected] of mistakes) {
        if (expected.startsWith('unclosed') && !canParse) continue;
        const path = join(folder, file);
        const right = readFileSync(path, 'utf8');
        writeFileSync(path, plant(right));
        const { status, stderr } = lint();
        if (status !== 1 || !stderr.includes(expected)) missed.push(`does not see ${name}: ${stderr}`);
        writeFileSync(path, right);
    }
} finally {
    rmSync(folder, { recursive: true });
}
missed.forEach((what) => console.error(`lint_test: the linter ${what}`));
console.log(`lint_test: ${mistakes.length} mistakes planted, ${missed.length} missed`);
process.exit(missed.length ? 1 : 0);
