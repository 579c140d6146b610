// The TypeScript SDK v2 before a server that wants tokens. Arguments: see
// oauth.mjs.

import { Client, ClientCredentialsProvider, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { plan, run, url, User } from './oauth.mjs';

const mode = plan.mode === 'modern' ? { pin: '2026-07-28' } : plan.mode;
const provider = plan.client === 'machine'
  ? new ClientCredentialsProvider({ clientId: 'machine', clientSecret: plan.secret, expectedIssuer: plan.issuer })
  : new User();

// unauthorized looks for the error among its causes: while it negotiates, the
// client wraps what the transport says.
const unauthorized = (err) => {
  for (let e = err; e; e = e.cause) if (UnauthorizedError.isInstance?.(e) || e instanceof UnauthorizedError) return true;
  return false;
};

await run({
  provider,
  connect: () => ({
    client: new Client({ name: 'peer-v2', version: '1.0.0' }, { versionNegotiation: { mode } }),
    transport: new StreamableHTTPClientTransport(url, { authProvider: provider }),
  }),
  call: (client, tool) => client.callTool(tool),
  finish: (transport, back) => transport.finishAuth(back),
  isUnauthorized: unauthorized,
});
