// The two grants of access across applications, which oidc-provider does not have. As the
// identity provider of a user it gives an identity assertion (ID-JAG) for an ID token (RFC 8693,
// draft-ietf-oauth-identity-assertion-authz-grant); as the authorization server of a resource
// it gives an access token for one (RFC 7523). A test says whom they know: see rule.
import { randomUUID } from 'node:crypto';
import { createLocalJWKSet, createRemoteJWKSet, importJWK, jwtVerify, SignJWT } from 'jose';
import { errors } from 'oidc-provider';

const { InvalidGrant, InvalidRequest, InvalidScope, InvalidTarget, CustomOIDCProviderError } = errors;

const urn = 'urn:ietf:params:oauth:token-type:';
const idJAG = 'oauth-id-jag+jwt';
const longest = 300; // seconds that an assertion may be good

let issues; // what it issues assertions for: audience, resource, client, scopes; claims and type are lies
let takes; // whose assertions it takes: issuer, keys (a URL), resource, scopes
let keysOf;

// rule replaces what a test has said before. Without a part of it that grant refuses everybody.
export function rule(said) {
  ({ issues, takes } = said);
  keysOf = takes && createRemoteJWKSet(new URL(takes.keys));
}

const now = () => Math.floor(Date.now() / 1000);

function grantable(text, scopes) {
  const asked = (text ?? '').split(' ').filter(Boolean);
  const unknown = asked.find((scope) => !scopes?.includes(scope));
  if (unknown) throw new InvalidScope('a scope that is not given', unknown);
  return asked.join(' ') || undefined;
}

// refuse says why, for whoever reads the test: the provider would say the same for everything.
const refuse = (why) => new CustomOIDCProviderError('invalid_grant', why);

// exchange returns the grant of the identity provider, whose keys are private JWKs.
export const exchange = (provider, keys) => async (ctx) => {
  const { client, params } = ctx.oidc;

  // 1. What is asked for, and for whom.
  if (params.requested_token_type !== `${urn}id-jag` || params.subject_token_type !== `${urn}id_token`) {
    throw new InvalidRequest('an ID-JAG is given for an ID token');
  }
  if (!issues || params.audience !== issues.audience || (params.resource ?? issues.resource) !== issues.resource) throw new InvalidTarget();
  const scope = grantable(params.scope, issues.scopes);

  // 2. Whose ID token it is: one that this client got.
  let subject;
  try {
    subject = await jwtVerify(params.subject_token, createLocalJWKSet({ keys: keys.map(({ kty, kid, use, alg, n, e, crv, x, y }) => ({ kty, kid, use, alg, n, e, crv, x, y })) }), {
      issuer: provider.issuer, audience: client.clientId, requiredClaims: ['sub', 'iat', 'exp'],
    });
  } catch (e) {
    throw refuse(`subject_token: ${e.message}`);
  }
  if (![undefined, 'JWT'].includes(subject.protectedHeader.typ)) throw refuse('subject_token: typ');

  // 3. The assertion.
  const claims = {
    iss: provider.issuer, sub: subject.payload.sub, aud: issues.audience, resource: issues.resource, client_id: issues.client,
    jti: randomUUID(), iat: now(), exp: now() + longest, scope, ...issues.claims,
  };
  for (const [name, value] of Object.entries(claims)) {
    if (value === null) delete claims[name];
  }
  ctx.body = {
    access_token: await new SignJWT(claims).setProtectedHeader({ alg: keys[0].alg, kid: keys[0].kid, typ: issues.type || idJAG }).sign(await importJWK(keys[0])),
    issued_token_type: `${urn}id-jag`, token_type: 'N_A', expires_in: longest, scope,
  };
};

// assert returns the grant of the authorization server.
export const assert = (provider, alg) => async (ctx) => {
  const { client, params } = ctx.oidc;
  if (!takes) throw new InvalidGrant();

  // 1. Signature, typ, issuer, audience and end.
  let claims;
  try {
    ({ payload: claims } = await jwtVerify(params.assertion ?? '', keysOf, {
      typ: idJAG, issuer: takes.issuer, audience: provider.issuer, requiredClaims: ['sub', 'iat', 'exp', 'jti'],
    }));
  } catch (e) {
    throw refuse(`assertion: ${e.message}`);
  }

  // 2. For this server alone, this client, this resource, a short time, and once.
  if (claims.aud !== provider.issuer) throw refuse('assertion: "aud" of several parties');
  if (claims.client_id !== client.clientId) throw refuse('assertion: "client_id" of another');
  if (claims.resource !== takes.resource) throw refuse('assertion: another "resource"');
  if (claims.exp > now() + longest) throw refuse('assertion: "exp" is too far away');
  if (!await provider.ReplayDetection.unique(claims.iss, claims.jti, claims.exp)) throw refuse('assertion: "jti" has come before');

  // 3. The token.
  const token = new provider.AccessToken({ accountId: claims.sub, client, gty: 'jwt-bearer', scope: grantable(params.scope ?? claims.scope, takes.scopes) });
  token.resourceServer = new provider.ResourceServer(takes.resource, { audience: takes.resource, accessTokenFormat: 'jwt', jwt: { sign: { alg } } });
  ctx.oidc.entity('AccessToken', token);
  ctx.body = { access_token: await token.save(), token_type: token.tokenType, expires_in: token.expiration, scope: token.scope };
};

export const exchangeGrant = 'urn:ietf:params:oauth:grant-type:token-exchange';
export const assertGrant = 'urn:ietf:params:oauth:grant-type:jwt-bearer';

// install adds both to a provider.
export function install(provider, keys) {
  provider.registerGrantType(exchangeGrant, exchange(provider, keys), ['subject_token', 'subject_token_type', 'requested_token_type', 'audience', 'resource', 'scope']);
  provider.registerGrantType(assertGrant, assert(provider, keys[0].alg), ['assertion', 'scope']);
}
