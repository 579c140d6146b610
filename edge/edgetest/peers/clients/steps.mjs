// What every client does here, whatever its SDK. The first argument is the URL
// of a server, the second a JSON object that says what there is to use:
//
//   transport  "streamable-http" or "sse"
//   mode       "legacy", "auto" or "modern"
//   call       {name, arguments} of a tool
//   header     the same of a tool whose argument is sent in a header as well
//              (modern: x-mcp-header); absent to leave it out
//   progress   {name, arguments, count}: a tool, and how often it tells progress
//   resource   a URI
//   prompt     {name, arguments}
//   elicit     {name, arguments, answer}: a tool that asks the user, and the
//              content of the form that the user sends; absent to leave it out
//   sample     {name, arguments, answer}: a tool that asks a model, and the
//              model's words; absent to leave it out
//
// What is seen goes to stdout, one JSON object a line. The exit code is 0 when
// every step had an answer.

export const url = new URL(process.argv[2]);
export const plan = JSON.parse(process.argv[3]);

// capabilities are declared only where something will be asked for.
export const capabilities = {
  ...(plan.elicit ? { elicitation: {} } : {}),
  ...(plan.sample ? { sampling: {} } : {}),
};

// asked holds what the server said when it asked.
const asked = { elicit: '', sample: '' };

export function elicited(params) {
  asked.elicit = params.message;
  return { action: 'accept', content: plan.elicit.answer };
}

export function sampled(params) {
  const content = params.messages[0].content;
  asked.sample = [content].flat()[0].text;
  return { role: 'assistant', model: 'none', stopReason: 'endTurn', content: { type: 'text', text: plan.sample.answer } };
}

const saw = (what) => console.log(JSON.stringify(what));
const text = (result) => {
  if (result.isError) throw new Error(`the tool reports a failure: ${JSON.stringify(result.content)}`);
  return result.content.map((c) => c.text).join('\n');
};

// run takes the steps. call is how this SDK calls a tool: a function of its
// params and of what hears its progress. version tells the negotiated revision.
export async function run({ client, transport, call, version }) {
  try {
    await client.connect(transport);
    saw({ version: version() });
    saw({ tools: (await client.listTools()).tools.map((t) => t.name) });
    saw({ call: text(await call(plan.call)) });
    if (plan.header) saw({ header: text(await call(plan.header)) });
    saw({ progress: await progress(transport, call) });
    saw({ resources: (await client.listResources()).resources.map((r) => r.uri) });
    saw({ resource: (await client.readResource({ uri: plan.resource })).contents[0].text });
    saw({ prompts: (await client.listPrompts()).prompts.map((p) => p.name) });
    saw({ prompt: (await client.getPrompt(plan.prompt)).messages[0].content.text });
    for (const step of ['elicit', 'sample']) {
      if (!plan[step]) continue;
      const { name, arguments: args } = plan[step];
      const said = text(await call({ name, arguments: args }));
      saw({ [step]: { asked: asked[step], said } });
    }
    await client.close();
  } catch (err) {
    console.error(err);
    process.exitCode = 1;
  }
}

// progress calls the tool that tells its progress and returns what was told.
// It listens at the transport: the SDKs forget who wants to hear as soon as the
// answer is there, and with it, now and then, the last notification.
async function progress(transport, call) {
  const { name, arguments: args, count } = plan.progress;
  const told = [];
  const hear = transport.onmessage;
  const all = new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`progress was told ${told.length} times, not ${count}`)), 10_000);
    transport.onmessage = (message, extra) => {
      if (message.method === 'notifications/progress') told.push(message.params.progress);
      hear(message, extra);
      if (told.length < count) return;
      clearTimeout(late);
      resolve();
    };
  });
  let heard = 0;
  await Promise.all([all, call({ name, arguments: args }, () => heard++)]);
  transport.onmessage = hear;
  if (heard === 0) throw new Error('progress was told and not heard');
  return told;
}
