// Counts the tokens of texts, as the models of OpenAI from GPT-4o on read them (o200k_base): an
// array of texts on standard input, an array of numbers on standard output.

import { getEncoding } from 'js-tiktoken';

const parts = [];
for await (const part of process.stdin) parts.push(part);
const encoding = getEncoding('o200k_base');
const count = (text) => encoding.encode(text, [], []).length;
console.log(JSON.stringify(JSON.parse(Buffer.concat(parts).toString('utf8')).map(count)));
