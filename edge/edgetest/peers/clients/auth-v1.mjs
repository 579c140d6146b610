// The TypeScript SDK v1 before a server that wants tokens. Arguments: see
// oauth.mjs.

import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { ClientCredentialsProvider } from '@modelcontextprotocol/sdk/client/auth-extensions.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { plan, run, url, User } from './oauth.mjs';

const provider = plan.client === 'machine'
  ? new ClientCredentialsProvider({ clientId: 'machine', clientSecret: plan.secret, expectedIssuer: plan.issuer })
  : new User();

await run({
  provider,
  connect: () => ({ client: new Client({ name: 'peer-v1', version: '1.0.0' }), transport: new StreamableHTTPClientTransport(url, { authProvider: provider }) }),
  call: (client, tool) => client.callTool(tool),
  finish: (transport, back) => transport.finishAuth(back.get('code')),
  isUnauthorized: (err) => err instanceof UnauthorizedError,
});
