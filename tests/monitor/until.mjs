#!/usr/bin/env node
// Waits until a Prometheus answers a query with at least one series, and says how long that took.
//
//   node tests/monitor/until.mjs URL SECONDS QUERY
const [, , prometheus, seconds, query] = process.argv;
const began = Date.now();
let answer = 'nothing';
while (Date.now() - began < Number(seconds) * 1000) {
    const words = new URLSearchParams({ query });
    const found = await fetch(`${prometheus}/api/v1/query?${words}`).then((got) => got.json(), (error) => ({ error: error.message }));
    if (found.status === 'success' && found.data.result.length) {
        console.log(`${((Date.now() - began) / 1000).toFixed(1)} s`);
        process.exit(0);
    }
    answer = found.error ?? 'no series';
    await new Promise((looked) => setTimeout(looked, 250));
}
console.error(`after ${seconds} s: ${answer} for ${query}`);
process.exit(1);
