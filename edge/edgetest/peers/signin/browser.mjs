// A browser that a test drives: Debian's chromium, by puppeteer-core. A line of standard
// input is a command, a JSON object; the line of its number on standard output is the answer.
// It ends when standard input does. The one argument is a JSON object: chromium (program),
// home (a folder of this run alone), ca (a CA's key as browsers are told to trust it).
import { createInterface } from 'node:readline';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import puppeteer from 'puppeteer-core';

const set = JSON.parse(process.argv[2]);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const patience = 30_000;

const browser = await puppeteer.launch({
  executablePath: set.chromium,
  userDataDir: set.home,
  headless: true,
  pipe: true, // at whose end it ends as well
  protocolTimeout: patience,
  env: { ...process.env, HOME: set.home },
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--no-proxy-server', '--disable-background-networking',
    '--disable-features=OptimizationHints,MediaRouter', '--host-resolver-rules=MAP *.example 127.0.0.1', `--ignore-certificate-errors-spki-list=${set.ca}`],
});

// A user is a context of the browser, with cookies of its own; a tab is one of its pages.
const users = new Map();
let lastUser = 0;
const tabs = new Map();

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

// until asks again and again for what a page that is on its way cannot say yet.
async function until(what, ask) {
  const end = Date.now() + patience;
  for (let last; ;) {
    try {
      const got = await ask();
      if (got) return got;
    } catch (err) { last = err; }
    if (Date.now() > end) throw new Error(`${what} does not come${last ? `: ${last.message}` : ''}`);
    await pause(20);
  }
}

async function open({ user }) {
  const { context, scripts, dark, width, height } = users.get(user);
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  const tab = { page, said: [], left: [], statuses: [] };
  page.on('dialog', (d) => { tab.said.push(`dialog: ${d.message()}`); d.dismiss().catch(() => {}); });
  const wire = await page.createCDPSession();
  await Promise.all([wire.send('Log.enable'), wire.send('Page.enable'), wire.send('Audits.enable'), wire.send('Runtime.enable')]);
  wire.on('Log.entryAdded', ({ entry }) => tab.said.push(`${entry.level}: ${entry.text} ${entry.url ?? ""}`));
  wire.on('Runtime.exceptionThrown', ({ exceptionDetails: e }) => tab.said.push(`exception: ${e.text}`));
  wire.on('Audits.issueAdded', ({ issue }) => {
    if (issue.code === 'ContentSecurityPolicyIssue') tab.said.push(`policy: ${JSON.stringify(issue.details.contentSecurityPolicyIssueDetails)}`);
  });
  wire.on('Page.frameRequestedNavigation', ({ url, reason }) => tab.left.push(`${reason} ${url}`));
  page.on('response', (r) => { if (r.request().isNavigationRequest()) tab.statuses.push(r.status()); });
  await page.setJavaScriptEnabled(scripts);
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }]);
  if (width) await page.setViewport({ width, height });
  const id = tabs.size + 1;
  tabs.set(id, tab);
  return id;
}

// atFront does what a user does to the page that they see, of which there is one at a time: a
// page behind it is not drawn, and takes no click.
let before = Promise.resolve();
function atFront(tab, act) {
  const mine = before.then(async () => {
    await tab.page.bringToFront();
    return act();
  });
  before = mine.catch(() => {});
  return mine;
}

// go is a navigation that a user began, which ends when the page that it leads to is there.
// A page may lead on before it is loaded, which is no fault. Between two pages the browser has
// none to reload or to go back from, and does nothing: it is asked again then.
async function go(tab, how) {
  for (const end = Date.now() + patience; ;) {
    try {
      const answer = await how();
      return answer ? answer.status() : 0;
    } catch (err) {
      if (/ERR_ABORTED|frame was detached|Navigating frame|History entry/.test(err.message)) return 0;
      if (!/Not attached to an active page/.test(err.message) || Date.now() > end) throw err;
      await pause(20);
    }
  }
}

const loaded = { waitUntil: 'domcontentloaded' };

// lost says where a tab is that does not get where it was to go.
async function lost(err, tab) {
  const text = await Promise.race([tab.page.evaluate(() => document.body.innerText).catch((e) => e.message), pause(2_000)]);
  throw new Error(`${err.message}; it left by ${tab.left.join(', ')}; statuses were ${tab.statuses.join(', ')}; it said ${tab.said.join('; ')}; its page is ${text}; it is at ${tab.page.url()}`);
}

const commands = {
  async user({ scripts, dark, width, height }) {
    const id = ++lastUser; // before the wait: commands are done at once, and each user has a context alone
    users.set(id, { context: await browser.createBrowserContext(), scripts: scripts !== false, dark, width, height });
    return id;
  },
  async leave({ user }) { await users.get(user).context.close(); },
  tab: open,
  goto: ({ url }, tab) => go(tab, () => tab.page.goto(url, loaded)),
  back: (_, tab) => go(tab, () => tab.page.goBack(loaded)),
  reload: (_, tab) => go(tab, () => tab.page.reload(loaded)),
  async click({ selector }, tab) { // as assistive technology does: a tab need not be seen for it
    await until(`${selector} to click on, at ${tab.page.url()}`, () => tab.page.$eval(selector, (one) => { one.click(); return true; }));
  },
  async type({ selector, text }, tab) {
    await until(`${selector} to type into`, () => atFront(tab, async () => {
      await tab.page.$eval(selector, (one) => { one.value = ''; });
      await tab.page.focus(selector);
      await tab.page.keyboard.type(text);
      const got = await tab.page.$eval(selector, (one) => one.value);
      if (got !== text) throw new Error(`it holds ${JSON.stringify(got)}`);
      return true;
    }));
  },
  press: ({ selector, text }, tab) => until(`${selector || 'the page'} to press ${text} at`, () => atFront(tab, async () => {
    if (selector) await tab.page.focus(selector);
    await tab.page.keyboard.press(text);
    return true;
  })),
  see: ({ selector }, tab) => until(`${selector}, at ${tab.page.url()}`, () => tab.page.$(selector)).then(() => null),
  at: ({ url }, tab) => until(`the way to ${url}`, () => tab.page.url().startsWith(url) && tab.page.url()).catch((err) => lost(err, tab)),
  leaves: ({ url }, tab) => until(`leaving for ${url}`, () => tab.left.find((one) => one.split(' ')[1].startsWith(url))).catch((err) => lost(err, tab)),
  where: (_, tab) => tab.page.url(),
  text: (_, tab) => until('the text of the page', () => tab.page.evaluate(() => document.body.innerText)),
  run: ({ code }, tab) => tab.page.evaluate(code),
  said: (_, tab) => tab.said,
  statuses: (_, tab) => tab.statuses,
  shot: ({ file }, tab) => atFront(tab, () => tab.page.screenshot({ path: file, fullPage: true })).then(() => null),
  cookies: async ({ user }) => users.get(user).context.cookies(),
  async axe(_, tab) {
    const status = tab.statuses.at(-1);
    await tab.page.setBypassCSP(true); // for what follows in this tab: the pages let no script in
    await until(`the page of status ${status} again`, async () => (await tab.page.reload(loaded)).status() === status);
    await tab.page.evaluate(axe);
    const found = await tab.page.evaluate(() => axe.run(document, { resultTypes: ['violations', 'incomplete'] }));
    await tab.page.setBypassCSP(false);
    const short = (all) => all.map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target} ${n.failureSummary ?? ''} ${n.any.map((a) => a.message).join()}`).join(' | ')}`);
    return { violations: short(found.violations), incomplete: short(found.incomplete), passes: found.passes.length };
  },
  close: async (_, tab) => { await tab.page.close(); },
};

const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
say({ id: 0, value: await browser.version() });
const lines = createInterface({ input: process.stdin });
lines.on('line', async (line) => {
  const command = JSON.parse(line);
  try {
    say({ id: command.id, value: (await commands[command.do](command, tabs.get(command.tab))) ?? null });
  } catch (err) {
    say({ id: command.id, error: String(err.stack ?? err).slice(0, 2000) });
  }
});
lines.on('close', async () => {
  await browser.close();
  process.exit(0);
});
