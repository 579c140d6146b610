// Lists the tools of npm servers, which nothing is connected to, and prints the file of a set
// for edge/edgetest/ranking: the one that is the argument, with the tools and versions of the
// packages as they are installed in the folder of the second argument, else beside this one.
//
//   node clients/capture.mjs ../ranking/testdata/first.json

import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [file, modules = join(import.meta.dirname, '..', 'node_modules')] = process.argv.slice(2);
const set = JSON.parse(readFileSync(file, 'utf8'));

async function tools({ package: name, entry, args = [], env = {} }) {
  const program = join(resolve(modules), name, entry);
  const transport = new StdioClientTransport({ command: process.execPath, args: [program, ...args], env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env }, stderr: 'ignore' });
  const client = new Client({ name: 'capture', version: '1' }, { capabilities: {} });
  await client.connect(transport, { timeout: 60_000 });
  try {
    return (await client.listTools({}, { timeout: 60_000 })).tools;
  } finally {
    await client.close();
  }
}

for (const server of set) {
  server.version = JSON.parse(readFileSync(join(modules, server.package, 'package.json'), 'utf8')).version;
  server.tools = await tools(server);
}
const text = ({ tools, ...server }) => `${JSON.stringify(server).slice(0, -1)},"tools":[\n${tools.map((t) => JSON.stringify(t)).join(',\n')}\n]}`;
console.log(`[${set.map(text).join(',\n')}]`);
