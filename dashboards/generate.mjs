#!/usr/bin/env node
// Writes the dashboards in this folder from source/*.mjs.
//
//   node dashboards/generate.mjs           writes them
//   node dashboards/generate.mjs --check   writes nothing; status 1 when one is not up to date
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = dirname(fileURLToPath(import.meta.url));
const names = ['overview', 'latency', 'subscribers', 'feed', 'rdma', 'host'];
const check = process.argv.includes('--check');

const stale = [];
for (const name of names) {
    const { default: dashboard } = await import(`./source/${name}.mjs`);
    const text = `${JSON.stringify(dashboard, null, 2)}\n`;
    const path = join(folder, `${name}.json`);
    if (!check) writeFileSync(path, text);
    else if (!existsSync(path) || readFileSync(path, 'utf8') !== text) stale.push(`${name}.json`);
}
const unknown = readdirSync(folder)
    .filter((file) => file.endsWith('.json') && !names.includes(file.slice(0, -5)));
if (stale.length) console.error(`not up to date, run node dashboards/generate.mjs: ${stale.join(', ')}`);
if (unknown.length) console.error(`written by nothing in dashboards/source: ${unknown.join(', ')}`);
process.exit(stale.length + unknown.length ? 1 : 0);
