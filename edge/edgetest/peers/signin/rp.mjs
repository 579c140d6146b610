// A relying party that others wrote: npm openid-client, which holds an issuer to OpenID
// Connect, RFC 8414, 9207 and 7009; and npm jose, which verifies tokens from the keys that are
// published. The argument is a JSON object: issuer, redirect, resource, method (of client
// authentication), alg (of signatures). It writes {open} for a browser and reads where that
// comes to; the last line that it writes is what it has seen.
import { createInterface } from 'node:readline';
import { createRemoteJWKSet, decodeProtectedHeader, jwtVerify } from 'jose';
import * as client from 'openid-client';

const plan = JSON.parse(process.argv[2]);
const say = (what) => console.log(JSON.stringify(what));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const seen = {};

// fails is the error that RFC 6749 has for what must not work.
const fails = async (what) => {
  try { await what(); } catch (err) { return `${err.status ?? ''} ${err.error ?? err.code ?? err.message}`; }
  return 'it works';
};

// 1. Registration, by what the issuer says of itself.
const auth = { none: client.None, client_secret_basic: client.ClientSecretBasic, client_secret_post: client.ClientSecretPost }[plan.method];
const config = await client.dynamicClientRegistration(new URL(plan.issuer), {
  client_name: 'relying party', redirect_uris: [plan.redirect], grant_types: ['authorization_code', 'refresh_token'], token_endpoint_auth_method: plan.method,
}, (...args) => auth(args[1].client_secret)(...args));
client.enableNonRepudiationChecks(config); // verifies ID tokens from the keys
const server = config.serverMetadata();
seen.metadata = { iss: server.authorization_response_iss_parameter_supported, challenge: server.supportsPKCE(), algs: server.id_token_signing_alg_values_supported };

// 2. The code flow.
const verifier = client.randomPKCECodeVerifier();
const [state, nonce] = [client.randomState(), client.randomNonce()];
const to = client.buildAuthorizationUrl(config, {
  redirect_uri: plan.redirect, scope: 'openid profile email offline_access', resource: plan.resource, state, nonce,
  code_challenge: await client.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256',
});
say({ open: to.href });
const back = new URL((await lines.next()).value);
const redeem = (where, more) => client.authorizationCodeGrant(config, where, { pkceCodeVerifier: verifier, expectedState: state, expectedNonce: nonce, idTokenExpected: true, ...more }, { resource: plan.resource });
const foreign = new URL(back);
foreign.searchParams.set('iss', 'https://evil.example');
seen.foreign = await fails(() => redeem(foreign)); // openid-client's own check, before it asks
const silent = new URL(back);
silent.searchParams.delete('iss');
seen.silent = await fails(() => redeem(silent));
const first = await redeem(back);
seen.claims = first.claims();

// 3. Access tokens and ID tokens, by jose.
const keys = createRemoteJWKSet(new URL(server.jwks_uri));
const accessOf = async (token) => (await jwtVerify(token, keys, { issuer: plan.issuer, audience: plan.resource, typ: 'at+jwt', algorithms: [plan.alg], requiredClaims: ['exp', 'iat', 'nbf', 'jti', 'sub', 'client_id', 'scope'] })).payload;
seen.access = await accessOf(first.access_token);
await jwtVerify(first.id_token, keys, { issuer: plan.issuer, audience: config.clientMetadata().client_id, algorithms: [plan.alg], requiredClaims: ['exp', 'iat', 'sub', 'nonce'] });
seen.header = decodeProtectedHeader(first.id_token);

// 4. Refresh, with fewer scopes and again.
const second = await client.refreshTokenGrant(config, first.refresh_token, { scope: 'openid', resource: plan.resource });
seen.narrow = (await accessOf(second.access_token)).scope;
const third = await client.refreshTokenGrant(config, second.refresh_token);
seen.renewed = { same: third.refresh_token === second.refresh_token, sub: (await accessOf(third.access_token)).sub };
seen.wider = await fails(() => client.refreshTokenGrant(config, third.refresh_token, { scope: 'openid unknown' }));
seen.elsewhere = await fails(() => client.refreshTokenGrant(config, third.refresh_token, { resource: 'https://evil.example/' }));

// 5. Revocation.
await client.tokenRevocation(config, third.refresh_token, { token_type_hint: 'refresh_token' });
seen.revoked = await fails(() => client.refreshTokenGrant(config, third.refresh_token));
await client.tokenRevocation(config, 'unknown'); // RFC 7009 §2.2: no error
say(seen);
process.stdin.destroy();
