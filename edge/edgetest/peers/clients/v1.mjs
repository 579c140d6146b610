// The TypeScript SDK v1, which is legacy. Arguments: see steps.mjs.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { capabilities, elicited, plan, run, sampled, url } from './steps.mjs';

if (plan.mode !== 'legacy') throw new Error(`v1 has no mode ${plan.mode}`);
const client = new Client({ name: 'peer-v1', version: '1.0.0' }, { capabilities });
if (plan.elicit) client.setRequestHandler(ElicitRequestSchema, (request) => elicited(request.params));
if (plan.sample) client.setRequestHandler(CreateMessageRequestSchema, (request) => sampled(request.params));
const transport = plan.transport === 'sse' ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url);

// The client tells the negotiated version to its transport alone.
let version = '';
const tell = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (v) => {
  version = v;
  tell?.(v);
};

await run({
  client,
  transport,
  call: (params, onprogress) => client.callTool(params, CallToolResultSchema, { onprogress }),
  version: () => version,
});
