// The TypeScript SDK of the time of 2025-03-26, before a server that wants tokens: it looks
// for the authorization server at the server's own origin, and names no resource. Arguments:
// see oauth.mjs.

import { UnauthorizedError } from 'mcp-sdk-2025-03-26/client/auth.js';
import { Client } from 'mcp-sdk-2025-03-26/client/index.js';
import { StreamableHTTPClientTransport } from 'mcp-sdk-2025-03-26/client/streamableHttp.js';
import { run, url, User } from './oauth.mjs';

const provider = new User();

await run({
  provider,
  connect: () => ({ client: new Client({ name: 'peer-older', version: '1.0.0' }), transport: new StreamableHTTPClientTransport(url, { authProvider: provider }) }),
  call: (client, tool) => client.callTool(tool),
  finish: (transport, back) => transport.finishAuth(back.get('code')),
  isUnauthorized: (err) => err instanceof UnauthorizedError,
});
