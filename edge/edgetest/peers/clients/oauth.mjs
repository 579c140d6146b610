// How a client without a screen gets its tokens, whatever its SDK. The first
// argument is the URL of a server that wants tokens, the second a JSON object:
//
//   mode      "legacy" or "modern"
//   client    "dynamic": registered on the way; "app": a public client that the
//             provider knows; "machine": one on its own account
//   secret    of machine
//   redirect  URI that the provider sends the user back to
//   token     an access token to begin with; absent for none
//   browser   true: each page for the user is written to stdout, as {open}, for somebody's
//             browser, and the address that it comes to is read from stdin, a line; absent:
//             the redirects are followed here
//   document  URL of a metadata document that is the client, where the server takes such
//   spoil     true: once more, with an access token that is spoilt, which the SDK renews
//   tool      {name, arguments} of the one call
//
// What is seen goes to stdout, one JSON object a line: which scopes were asked
// for, and what the call said. The exit code is 0 when the call had an answer.

import { createInterface } from 'node:readline';

export const url = new URL(process.argv[2]);
export const plan = JSON.parse(process.argv[3]);
export const saw = (what) => console.log(JSON.stringify(what));

// browse follows the redirects of the provider, keeping its cookies, until it
// sends the user back, and returns what it sends along. Nobody clicks.
async function browse(to) {
  const cookies = new Map();
  let where = new URL(to);
  for (let steps = 0; steps < 20; steps++) {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const res = await fetch(where, { redirect: 'manual', headers: cookie ? { cookie } : {} });
    for (const line of res.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      cookies.set(name, value);
    }
    const next = res.headers.get('location');
    if (!next) throw new Error(`${where}: status ${res.status}: ${(await res.text()).slice(0, 500)}`);
    where = new URL(next, where);
    if (where.href.startsWith(plan.redirect)) return where.searchParams;
  }
  throw new Error('the redirects do not end');
}

const lines = plan.browser ? createInterface({ input: process.stdin })[Symbol.asyncIterator]() : undefined;

// User is an OAuthClientProvider for a user who has nothing but this process.
export class User {
  #client; #tokens; #verifier; #discovery;
  back; // what the provider sent along with the user

  constructor() {
    if (plan.client === 'app') this.#client = { client_id: 'app', token_endpoint_auth_method: 'none' };
    if (plan.token) this.#tokens = { access_token: plan.token, token_type: 'Bearer' };
  }
  get clientMetadataUrl() { return plan.document; }
  spoil() { this.#tokens = { ...this.#tokens, access_token: 'spoilt' }; }
  state() { return plan.browser ? 'a-state-of-the-client' : undefined; }
  get redirectUrl() { return plan.redirect; }
  get clientMetadata() {
    return {
      client_name: 'peer', redirect_uris: [plan.redirect], application_type: 'native',
      grant_types: plan.browser ? ['authorization_code', 'refresh_token'] : ['authorization_code'],
      response_types: ['code'], token_endpoint_auth_method: 'none',
    };
  }
  clientInformation() { return this.#client; }
  saveClientInformation(client) {
    if (client.client_id !== 'app') saw({ registered: client.client_id !== plan.document });
    this.#client = client;
  }
  tokens() { return this.#tokens; }
  saveTokens(tokens) { this.#tokens = tokens; }
  saveCodeVerifier(verifier) { this.#verifier = verifier; }
  codeVerifier() { return this.#verifier; }
  saveDiscoveryState(state) { this.#discovery = state; }
  discoveryState() { return this.#discovery; }
  invalidateCredentials(what) { if (what === 'all' || what === 'tokens') this.#tokens = undefined; }
  async redirectToAuthorization(to) {
    saw({ asked: { scope: to.searchParams.get('scope'), resource: to.searchParams.get('resource') } });
    if (!plan.browser) {
      this.back = await browse(to);
      return;
    }
    saw({ open: to.href });
    this.back = new URL((await lines.next()).value).searchParams;
  }
}

// run connects and calls. connect makes a client and a transport and connects
// them; finish hands what the provider sent along to a transport.
export async function run({ provider, connect, call, finish, isUnauthorized }) {
  for (let round = 0; ; round++) {
    const { client, transport } = await connect(provider);
    try {
      await client.connect(transport);
      const result = await call(client, plan.tool);
      saw({ call: result.content.map((c) => c.text).join('\n') });
      if (plan.spoil) {
        provider.spoil();
        const again = await call(client, plan.tool);
        saw({ again: again.content.map((c) => c.text).join('\n'), renewed: provider.tokens().access_token !== 'spoilt' });
      }
      await client.close();
      if (plan.browser) process.stdin.destroy();
      return;
    } catch (err) {
      if (!isUnauthorized(err) || !provider.back || round === 3) throw err;
      const back = provider.back;
      provider.back = undefined;
      await finish(transport, back);
      await client.close();
    }
  }
}
