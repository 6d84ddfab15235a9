#!/usr/bin/env node
// Writes an ITCH 5.0 file of one instrument whose book is as deep as a snapshot can be, so that each
// snapshot fills a page of the pool. After the book is built, one order comes and goes.
//
//   node tests/monitor/deep_book.mjs FILE SECONDS
import { writeFileSync } from 'node:fs';

const [, , path, seconds] = process.argv;
const LEVELS = 83;
const EVERY_NS = 1_000_000;
const NINE = 9 * 3600 * 1e9;
const messages = [];

function message(type, length, at, fill) {
    const bytes = Buffer.alloc(2 + length, 0x20);
    bytes.writeUInt16BE(length, 0);
    const body = bytes.subarray(2);
    body.write(type, 0);
    body.writeUInt16BE(1, 1);
    body.writeUInt16BE(0, 3);
    body.writeUIntBE(NINE + at, 5, 6);
    fill(body);
    messages.push(bytes);
}

const directory = () => message('R', 39, 0, (body) => {
    body.write('DEEP    QN', 11);
    body.writeUInt32BE(100, 21);
    body.write('NCZ PNN1N', 25);
    body.writeUInt32BE(0, 34);
    body.write('N', 38);
});

const add = (at, order, side, price) => message('A', 36, at, (body) => {
    body.writeBigUInt64BE(BigInt(order), 11);
    body.write(side, 19);
    body.writeUInt32BE(100, 20);
    body.write('DEEP    ', 24);
    body.writeUInt32BE(price, 32);
});

const remove = (at, order) => message('D', 19, at, (body) => body.writeBigUInt64BE(BigInt(order), 11));

directory();
for (let level = 0; level < LEVELS; level += 1) {
    add(1000 * level, 2 * level + 1, 'B', 1_000_000 - 100 * level);
    add(1000 * level, 2 * level + 2, 'S', 1_000_100 + 100 * level);
}
const comes = 1_000_000;
for (let pair = 1; pair <= seconds * 500; pair += 1) {
    add(2 * pair * EVERY_NS, comes + pair, 'B', 1_000_000);
    remove((2 * pair + 1) * EVERY_NS, comes + pair);
}
writeFileSync(path, Buffer.concat(messages));
