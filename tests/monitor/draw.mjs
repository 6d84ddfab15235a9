#!/usr/bin/env node
// Serves the dashboards, drawn from a Prometheus, or takes a picture of each.
//
//   node tests/monitor/draw.mjs --prometheus URL --page FOLDER --modules FOLDER --instance HOST:PORT
//       [--seconds 120] --pictures FOLDER   one PNG for each dashboard; status 1 when a panel fails
//       [--only NAME]                       that dashboard alone, such as rdma
//       [--until UNIX_SECONDS]              as it was then, not now
//       [--seconds 120] --serve             until it is killed; prints the addresses
import { mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { builtIn } from './queries.mjs';

const { values: options } = parseArgs({ options: {
    prometheus: { type: 'string' }, page: { type: 'string' }, modules: { type: 'string' },
    instance: { type: 'string' }, seconds: { type: 'string', default: '120' },
    only: { type: 'string' }, until: { type: 'string' }, pictures: { type: 'string' }, serve: { type: 'boolean', default: false },
} });
const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const folder = join(root, 'dashboards');
const names = readdirSync(folder).filter((name) => name.endsWith('.json')).map((name) => name.slice(0, -5))
    .filter((name) => !options.only || name === options.only);
const seconds = Number(options.seconds);
const PATIENCE_MS = 60_000;
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json' };

function settings() {
    const to = Number(options.until ?? Date.now() / 1000);
    const step = Math.max(1, Math.ceil(seconds / 600));
    const instance = options.instance.replace(/[.]/g, '\\\\.');
    const chosen = { datasource: 'prometheus', instance, channel: '.*', subscriber: '.*' };
    return { values: { ...chosen, ...builtIn(seconds) }, from: to - seconds, to, step };
}

function passOn(asked, answer, path) {
    const onward = request(new URL(path, options.prometheus), (got) => {
        answer.writeHead(got.statusCode, { 'content-type': 'application/json' });
        got.pipe(answer);
    });
    onward.on('error', (error) => answer.writeHead(502).end(error.message));
    asked.pipe(onward);
}

function serve(asked, answer) {
    const { pathname, search } = new URL(asked.url, 'http://localhost');
    const send = (type, body) => answer.writeHead(200, { 'content-type': type }).end(body);
    try {
        if (pathname.startsWith('/prom/')) return passOn(asked, answer, pathname.slice(5) + search);
        if (pathname === '/settings.json') return send(types['.json'], JSON.stringify(settings()));
        const path = normalize(pathname === '/' ? '/index.html' : pathname);
        const from = path.startsWith('/dashboards/') ? root : options.page;
        return send(types[extname(path)] ?? 'application/octet-stream', readFileSync(join(from, path)));
    } catch (error) {
        return answer.writeHead(404).end(error.message);
    }
}

async function picture(browser, address, name) {
    const page = await browser.newPage({ viewport: { width: 1620, height: 900 } });
    const faults = [];
    page.on('pageerror', (error) => faults.push(error.message.slice(0, 300)));
    await page.goto(`${address}/?dashboard=${name}`, { timeout: PATIENCE_MS });
    const drawn = () => window.__total > 0 && window.__done >= window.__total;
    await page.waitForFunction(drawn, null, { timeout: PATIENCE_MS })
        .catch(() => faults.push(`panels are not drawn after ${PATIENCE_MS / 1000} s`));
    // Two frames after the last answer everything is painted.
    await page.evaluate(() => new Promise((painted) =>
        requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(painted, 300)))));
    const panels = await page.locator('[data-panel]').count();
    faults.push(...await page.evaluate(() => window.__errors));
    await page.screenshot({ path: join(options.pictures, `${name}.png`), fullPage: true });
    await page.close();
    return { panels, faults };
}

async function pictures(address) {
    const { chromium } = createRequire(join(options.modules, 'x.js'))('playwright-core');
    mkdirSync(options.pictures, { recursive: true });
    const browser = await chromium.launch({
        executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
        args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
            '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
    let failed = 0;
    try {
        for (const name of names) {
            const { panels, faults } = await picture(browser, address, name);
            console.log(`drawn: ${name}.png, ${panels} panels${faults.length ? `, ${faults.length} FAULTS` : ''}`);
            faults.forEach((fault) => console.error(`draw: ${name}: ${fault}`));
            failed += faults.length + (panels ? 0 : 1);
        }
    } finally {
        await browser.close();
    }
    return failed;
}

const server = createServer(serve);
server.listen(0, '127.0.0.1', async () => {
    const address = `http://127.0.0.1:${server.address().port}`;
    if (options.serve) {
        names.forEach((name) => console.log(`  ${address}/?dashboard=${name}`));
        return;
    }
    const failed = await pictures(address).catch((error) => {
        console.error(`draw: ${error.message}`);
        return 1;
    });
    process.exit(failed ? 1 : 0);
});
