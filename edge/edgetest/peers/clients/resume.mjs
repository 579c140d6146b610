// The TypeScript SDK v1 loses its connection in the middle of a call: after the
// first progress that it is told. Arguments: see steps.mjs; only progress of the
// plan is used. What was seen is printed as one JSON object:
//
//   cut       how often a connection was cut
//   resumed   how often a stream was opened again by Last-Event-ID
//   progress  what was told of the call
//   content   how many parts the answer has

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';

const url = new URL(process.argv[2]);
const { name, arguments: args } = JSON.parse(process.argv[3]).progress;
const saw = { cut: 0, resumed: 0, progress: [], content: 0 };

// cutting is fetch whose stream of the call breaks after the first progress.
async function cutting(input, init) {
  if (new Headers(init?.headers).has('last-event-id')) saw.resumed++;
  const response = await fetch(input, init);
  if (saw.cut > 0 || init?.method !== 'POST' || !String(init.body).includes('"tools/call"')) return response;
  const reader = response.body.getReader();
  const text = new TextDecoder();
  let seen = '';
  const body = new ReadableStream({
    async pull(controller) {
      if (seen.includes('notifications/progress') && seen.endsWith('\n\n')) {
        saw.cut++;
        await reader.cancel();
        controller.error(new Error('the connection is cut'));
        return;
      }
      const { done, value } = await reader.read();
      if (done) return controller.close();
      seen += text.decode(value, { stream: true });
      controller.enqueue(value);
    },
  }, { highWaterMark: 0 });
  return new Response(body, { status: response.status, headers: response.headers });
}

const client = new Client({ name: 'peer-v1', version: '1.0.0' });
const transport = new StreamableHTTPClientTransport(url, {
  fetch: cutting,
  reconnectionOptions: { initialReconnectionDelay: 50, maxReconnectionDelay: 200, reconnectionDelayGrowFactor: 1.5, maxRetries: 5 },
});
await client.connect(transport);
const hear = transport.onmessage;
transport.onmessage = (message, extra) => {
  if (message.method === 'notifications/progress') saw.progress.push(message.params.progress);
  hear(message, extra);
};
const result = await client.callTool({ name, arguments: args }, CallToolResultSchema, { onprogress: () => {} });
saw.content = result.content.length;
await client.close();
console.log(JSON.stringify(saw));
