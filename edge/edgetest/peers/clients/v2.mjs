// The TypeScript SDK v2, which speaks both eras. Arguments: see steps.mjs.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { capabilities, elicited, plan, run, sampled, url } from './steps.mjs';

const mode = plan.mode === 'modern' ? { pin: '2026-07-28' } : plan.mode;
const client = new Client({ name: 'peer-v2', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
if (plan.elicit) client.setRequestHandler('elicitation/create', (request) => elicited(request.params));
if (plan.sample) client.setRequestHandler('sampling/createMessage', (request) => sampled(request.params));

await run({
  client,
  transport: plan.transport === 'sse' ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url),
  call: (params, onprogress) => client.callTool(params, { onprogress }),
  version: () => client.getNegotiatedProtocolVersion(),
});
