// Calls tools that ask, each as a new client of the TypeScript SDK v1 or v2. The first argument
// is the URL of a server, the second a JSON array of objects:
//
//   mode     "legacy" (v1) or "modern" (v2)
//   name, arguments   of the tool
//   answers  by the first word of the question: {action, content}, or null to let it wait for
//            ever; absent for a client that cannot be asked
//
// It prints an array of {asked: [messages], result} and ends with 0.

import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { Client as ClientV2, StreamableHTTPClientTransport as TransportV2 } from '@modelcontextprotocol/client';

const url = new URL(process.argv[2]);

async function say(plan) {
  const asked = [];
  const answer = (params) => {
    asked.push(params.message);
    const said = plan.answers[params.message.split(/[ ?]/)[0]];
    return said ?? new Promise(() => {});
  };
  const capabilities = plan.answers ? { elicitation: {} } : {};
  const params = { name: plan.name, arguments: plan.arguments ?? {} };
  let client, result;
  if (plan.mode === 'legacy') {
    client = new ClientV1({ name: 'peer-workflow-v1', version: '1.0.0' }, { capabilities });
    if (plan.answers) client.setRequestHandler(ElicitRequestSchema, (r) => answer(r.params));
    await client.connect(new TransportV1(url));
    result = await client.callTool(params, CallToolResultSchema);
  } else {
    client = new ClientV2({ name: 'peer-workflow-v2', version: '1.0.0' }, { capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } } });
    if (plan.answers) client.setRequestHandler('elicitation/create', (r) => answer(r.params));
    await client.connect(new TransportV2(url));
    result = await client.callTool(params);
  }
  await client.close();
  return { asked, result };
}

const all = [];
for (const plan of JSON.parse(process.argv[3])) all.push(await say(plan));
console.log(JSON.stringify(all));
process.exit(0); // a question may wait for ever
