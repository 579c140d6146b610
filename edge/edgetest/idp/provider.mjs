// An identity provider for tests: oidc-provider with clients, users and
// resources of its own, and a few control endpoints under /-/. It listens on a
// free port of the loopback interface, or on IDP_PORT, prints its issuer, and ends when its
// standard input does. With IDP_CERT and IDP_KEY, files in PEM, it speaks TLS, and
// takes the URLs of documents as ids of clients. More of the environment: see How in idp.go.
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { readFileSync } from 'node:fs';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import Provider from 'oidc-provider';
import { assertGrant, exchangeGrant, install, rule } from './across.mjs';

const stored = new Map(); // shared by every Provider, so that a rotation forgets nothing
const expiry = (seconds) => (seconds ? Date.now() + seconds * 1000 : Infinity);

class Adapter {
  constructor(model) { this.model = model; }
  key(id) { return `${this.model}:${id}`; }
  async upsert(id, payload, seconds) { stored.set(this.key(id), { payload, until: expiry(seconds) }); }
  async find(id) {
    const found = stored.get(this.key(id));
    return found && found.until > Date.now() ? found.payload : undefined;
  }
  async findBy(name, value) {
    for (const [key, { payload, until }] of stored) {
      if (key.startsWith(`${this.model}:`) && payload[name] === value && until > Date.now()) return payload;
    }
    return undefined;
  }
  async findByUid(uid) { return this.findBy('uid', uid); }
  async findByUserCode(code) { return this.findBy('userCode', code); }
  async consume(id) { (await this.find(id)).consumed = Math.floor(Date.now() / 1000); }
  async destroy(id) { stored.delete(this.key(id)); }
  async revokeByGrantId(grantId) {
    for (const [key, { payload }] of stored) {
      if (payload.grantId === grantId) stored.delete(key);
    }
  }
}

const newKey = (kind) => {
  const { privateKey } = kind === 'EC'
    ? generateKeyPairSync('ec', { namedCurve: 'P-256' })
    : generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: kind === 'EC' ? 'ES256' : 'RS256' };
};

// groups of users, which their access tokens carry.
const groups = { alice: ['eng'], olga: ['ops'] };

const secure = process.env.IDP_CERT
  ? { cert: readFileSync(process.env.IDP_CERT), key: readFileSync(process.env.IDP_KEY) } : undefined;

const host = process.env.IDP_HOST || '127.0.0.1';
const redirects = JSON.parse(process.env.IDP_REDIRECTS || '[]');
const accessLife = Number(process.env.IDP_LIFE || 600);
const page = process.env.IDP_PAGE;

let keys = [newKey('RSA')];
let issuer;
let provider;
let handle;
let down = false;
const hits = {};

function build() {
  provider = new Provider(issuer, {
    adapter: Adapter,
    jwks: { keys },
    clients: [
      {
        client_id: 'machine', client_secret: 'machine-secret', grant_types: ['client_credentials'], redirect_uris: [], response_types: [],
      },
      {
        client_id: 'app', token_endpoint_auth_method: 'none', application_type: 'native', grant_types: ['authorization_code', 'refresh_token'], redirect_uris: ['http://127.0.0.1/callback'], response_types: ['code'],
      },
      { // the edge, which introspects, and comes with identity assertions
        client_id: 'edge+1', client_secret: 'edge secret/1', grant_types: [assertGrant], redirect_uris: [], response_types: [],
      },
      { // at which users log in once for all, and which gets identity assertions for them
        client_id: 'sso+1', client_secret: 'sso secret/1', application_type: 'native', grant_types: ['authorization_code', 'refresh_token', exchangeGrant], redirect_uris: ['http://127.0.0.1/callback'], response_types: ['code'],
      },
      ...(redirects.length === 0 ? [] : [{ // of an edge that users sign in at
        client_id: 'door', client_secret: 'door-secret', grant_types: ['authorization_code', 'refresh_token'], redirect_uris: redirects, response_types: ['code'],
      }]),
    ],
    cookies: { keys: [randomUUID()] },
    scopes: ['openid', 'offline_access', 'tools:read', 'tools:write'],
    claims: { openid: ['sub'] },
    extraTokenClaims: (ctx, token) => (groups[token.accountId] ? { groups: groups[token.accountId] } : undefined),
    ttl: {
      AccessToken: accessLife, ClientCredentials: 600, Grant: 3600, Interaction: 600, Session: 3600, IdToken: 600, RefreshToken: 3600,
    },
    findAccount: (ctx, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
    // Its own fetch goes to no loopback address, where all is that a test starts.
    fetch: (url, { dispatcher, ...options }) => fetch(url, options),
    features: {
      clientIdMetadataDocument: { enabled: secure !== undefined, ack: 'draft-02' },
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true, allowedPolicy: (ctx, client) => client.clientId === 'edge+1' },
      revocation: { enabled: true, allowedPolicy: () => true },
      registration: { enabled: true }, // of whoever comes
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        // A resource whose name ends in /opaque takes opaque tokens.
        getResourceServerInfo: (ctx, resource) => ({
          scope: 'tools:read tools:write',
          audience: resource,
          accessTokenTTL: 600,
          accessTokenFormat: resource.endsWith('/opaque') ? 'opaque' : 'jwt',
          jwt: { sign: { alg: keys[0].alg } },
        }),
      },
    },
  });
  install(provider, keys);
  handle = provider.callback();
}

// body is that of a request, as JSON.
async function body(req) {
  let text = '';
  for await (const part of req) text += part;
  return JSON.parse(text);
}

// form is the body of a request, as that of a form.
async function form(req) {
  let text = '';
  for await (const part of req) text += part;
  return new URLSearchParams(text);
}

// loginPage asks the user who they are. What its policy lets a browser do after the form is
// sent depends on the form of the answer to it: see How.
function loginPage(req, res, params) {
  const to = page === 'redirect' ? ` ${new URL(params.redirect_uri).origin}` : '';
  res.setHeader('Content-Security-Policy', `default-src 'none'; form-action 'self'${to}`);
  res.setHeader('Content-Type', 'text/html; charset=utf-8');
  res.end(`<!DOCTYPE html><html lang="en"><title>Login</title><main><h1>Login</h1><form method="post" action="${req.url}">
<label>Name <input name="user" autofocus></label><button name="answer" value="yes">Log in</button><button name="answer" value="no">Cancel</button></form></main></html>`);
}

// loggedIn answers the form of loginPage, by redirects or by a page that leads on.
async function loggedIn(req, res) {
  const answer = await form(req);
  const result = answer.get('answer') === 'yes' ? { login: { accountId: answer.get('user') } } : { error: 'access_denied' };
  if (page === 'redirect') {
    await provider.interactionFinished(req, res, result);
    return;
  }
  const to = await provider.interactionResult(req, res, result);
  res.setHeader('Content-Type', 'text/html; charset=utf-8');
  res.end(`<!DOCTYPE html><html lang="en"><title>Going on</title><meta http-equiv="refresh" content="0; url=${to}">`);
}

// interact answers every question of the provider: the user is the one that login_hint
// names, else whoever a page is told, else somebody, and consents to all at once.
async function interact(req, res) {
  if (page && req.method === 'POST') {
    await loggedIn(req, res);
    return;
  }
  const { prompt, params, session } = await provider.interactionDetails(req, res);
  if (prompt.name === 'login') {
    if (page && !params.login_hint) {
      loginPage(req, res, params);
      return;
    }
    await provider.interactionFinished(req, res, { login: { accountId: params.login_hint ?? 'somebody' } });
    return;
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  for (const resource of [params.resource].flat().filter(Boolean)) {
    grant.addResourceScope(resource, 'tools:read tools:write');
  }
  await provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
}

const answer = async (req, res) => {
  try {
    const path = req.url.split('?')[0];
    hits[path] = (hits[path] ?? 0) + 1;
    switch (path) {
      case '/-/rotate': // the new key signs at once; with ?forget the old ones are gone
        keys = [newKey(keys[0].kty === 'EC' ? 'RSA' : 'EC'), ...(req.url.endsWith('?forget') ? [] : keys)];
        build();
        res.end(keys[0].kid);
        return;
      case '/-/hits': res.end(JSON.stringify(hits)); return;
      case '/-/down': down = true; res.end(); return;
      case '/-/up': down = false; res.end(); return;
      case '/-/across': rule(await body(req)); res.end(); return;
      default:
    }
    if (down) { req.socket.destroy(); return; }
    if (path.startsWith('/interaction/')) await interact(req, res);
    else handle(req, res);
  } catch (e) {
    res.statusCode = 500;
    res.end(String(e));
  }
};

const server = secure ? createSecureServer(secure, answer) : createServer(answer);

server.listen(Number(process.env.IDP_PORT ?? 0), host, () => {
  issuer = `${secure ? 'https' : 'http'}://${host}:${server.address().port}`;
  build();
  process.stdout.write(`${JSON.stringify({ issuer })}\n`);
});
process.stdin.on('end', () => process.exit(0)).resume();
