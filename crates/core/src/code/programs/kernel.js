// Runs cells of JavaScript, one request per line. Text goes straight to descriptors 1 and 2; what is more than text travels
// between the text, in frames that are written at once and are short, so that nothing else of this box can end up inside.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const repl = require('node:repl');
const util = require('node:util');
const { Console } = require('node:console');
const { Readable, Writable } = require('node:stream');
const Module = require('node:module');

const FRAME_BYTES_MAX = 4096; // a pipe takes this in one piece, also with other writers
const EVENT_BYTES_MAX = 8 << 20; // what the server takes as one event
const TEXT_CHARS_MAX = 1 << 20; // of one text in an event
const REQUESTS = 3; // where requests come in; 0 is empty, for cells
const { stringify, parse } = JSON;
const pause = new Int32Array(new SharedArrayBuffer(4));
const [language, nonce] = process.argv.splice(1).slice(-2);
const prefix = '\x1e' + nonce;

function writeAll(descriptor, data) {
  let left = Buffer.isBuffer(data) ? data : Buffer.from(data);
  while (left.length > 0) {
    try {
      left = left.subarray(fs.writeSync(descriptor, left));
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(pause, 0, 0, 5);
    }
  }
}

function frame(descriptor, kind, payload) {
  writeAll(descriptor, prefix + kind + payload + '\n');
}

function both(kind, payload) {
  frame(2, kind, payload);
  frame(1, kind, payload);
}

function ascii(value) {
  const escaped = (unit) => '\\u' + unit.charCodeAt(0).toString(16).padStart(4, '0');
  return stringify(value, (_, item) => (typeof item === 'bigint' ? String(item) : item)).replace(/[\u007f-\uffff]/g, escaped);
}

function event(fields) {
  let data = ascii(fields);
  if (data.length > EVENT_BYTES_MAX) {
    writeAll(2, `strongbox: a ${fields.type} of ${data.length} bytes is too large to be shown\n`);
    data = ascii({ type: fields.type, is_main_result: fields.is_main_result, text: shortened(String(fields.text ?? ''), 1000) });
  }
  const room = FRAME_BYTES_MAX - prefix.length - 2;
  if (data.length <= room) return frame(1, 'v', data);
  for (let at = 0; at < data.length; at += room) {
    const kind = at === 0 ? 's' : at + room >= data.length ? 'f' : 'c';
    frame(1, kind, data.slice(at, at + room));
  }
}

function wellFormed(text) {
  // Half characters are no JSON.
  return text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, '\ufffd');
}

function shortened(text, charsMax = TEXT_CHARS_MAX) {
  if (text.length <= charsMax) return wellFormed(text);
  return wellFormed(text.slice(0, charsMax)) + `\n... (${text.length - charsMax} more characters)`;
}

class Stream extends Writable {
  constructor(descriptor) {
    super({ decodeStrings: false });
    this.fd = descriptor;
    this.isTTY = false;
  }
  // Written at once, so that nothing is lost with the process.
  write(chunk, encoding, done) {
    writeAll(this.fd, typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : chunk);
    const then = typeof encoding === 'function' ? encoding : done;
    if (then) process.nextTick(then);
    return true;
  }
  end(chunk, encoding, done) {
    if (chunk) this.write(chunk, encoding, done);
    return this;
  }
}

function takeStreams() {
  const [stdout, stderr] = [new Stream(1), new Stream(2)];
  const stdin = Readable.from([]);
  for (const [name, value] of Object.entries({ stdout, stderr, stdin })) {
    Object.defineProperty(process, name, { value, configurable: true, enumerable: true });
  }
  globalThis.console = new Console({ stdout, stderr, colorMode: false });
}

const forms = {
  'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg', 'image/png': 'png',
  'image/jpeg': 'jpeg', 'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json',
  'application/javascript': 'javascript', 'text/javascript': 'javascript',
};

// Values may say how they look, as a bundle by media type, in the way that notebooks for JavaScript agreed on.
async function shown(value) {
  const show = value !== null && typeof value === 'object' ? value[Symbol.for('Jupyter.display')] : undefined;
  const bundle = typeof show === 'function' ? await show.call(value) : {};
  const fields = { text: unquoted(shortened(util.inspect(value, { maxStringLength: TEXT_CHARS_MAX }))) };
  for (const [media, form] of Object.entries(bundle ?? {})) {
    const told = Buffer.isBuffer(form) ? form.toString('base64') : typeof form === 'string' ? wellFormed(form) : form;
    if (forms[media]) fields[forms[media]] = told;
    else (fields.extra ??= {})[media] = told;
  }
  return fields;
}

function unquoted(text) {
  return text.length >= 2 && text[0] === text.at(-1) && /^['"`]/.test(text) ? text.slice(1, -1) : text;
}

// Frames up to the cell are the user's; what is above them is ours and Node's.
function stackOf(error) {
  const lines = String(error.stack ?? error).split('\n');
  const last = lines.findLastIndex((line) => /\bat\b.*\bcell \d+:/.test(line));
  const ends = last >= 0 ? last + 1 : lines.findIndex((line) => /\((?:node:|\[eval\])|\bat (?:node:|\[eval\])/.test(line));
  return (ends > 0 ? lines.slice(0, ends) : lines).join('\n');
}

function tell(error) {
  const isError = error !== null && typeof error === 'object' && 'message' in error;
  let [name, value, traceback] = ['Error', '', ''];
  try {
    name = isError ? String(error.name ?? 'Error') : 'Error';
    value = isError ? String(error.message) : util.inspect(error);
    traceback = isError ? stackOf(error) : 'Uncaught ' + value;
  } catch {
    value = 'its text cannot be told';
  }
  if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' || error === INTERRUPTED) [name, value] = ['KeyboardInterrupt', 'interrupted'];
  event({ type: 'error', name: shortened(name, 1000), value: shortened(value, 100000), traceback: shortened(traceback, 200000) });
}

const INTERRUPTED = Object.assign(new Error('interrupted'), { stack: 'KeyboardInterrupt: interrupted' });
let interrupt = () => {};
const onInterrupt = () => interrupt();
let failed = null;

// Static imports become dynamic ones: a cell cannot be a module.
function withoutImports(code) {
  const named = (names) => names.replace(/\s+as\s+/g, ': ');
  return code
    .replace(/^[ \t]*import\s+(['"][^'"]+['"])\s*;?[ \t]*$/gm, 'await import($1);')
    .replace(/^[ \t]*import\s+\*\s+as\s+([\w$]+)\s+from\s+(['"][^'"]+['"])\s*;?[ \t]*$/gm, 'const $1 = await import($2);')
    .replace(/^[ \t]*import\s+([\w$]+)\s*,\s*(\{[^}]*\})\s+from\s+(['"][^'"]+['"])\s*;?[ \t]*$/gm,
      (_, main, names, from) => `const { default: ${main}, ...{} } = await import(${from}); const ${named(names)} = await import(${from});`.replace(', ...{}', ''))
    .replace(/^[ \t]*import\s+(\{[^}]*\})\s+from\s+(['"][^'"]+['"])\s*;?[ \t]*$/gm,
      (_, names, from) => `const ${named(names)} = await import(${from});`)
    .replace(/^[ \t]*import\s+([\w$]+)\s+from\s+(['"][^'"]+['"])\s*;?[ \t]*$/gm, 'const { default: $1 } = await import($2);');
}

function withoutTypes(code) {
  if (!Module.stripTypeScriptTypes) return code; // then it has to be JavaScript
  const emit = process.emitWarning;
  process.emitWarning = () => {};
  try {
    return Module.stripTypeScriptTypes(code, { mode: 'transform' });
  } finally {
    process.emitWarning = emit;
  }
}

function evaluate(shell, code, count) {
  return new Promise((resolve, reject) => {
    // While code runs, Node itself breaks it on an interrupt; another listener would take that away from it.
    process.removeAllListeners('SIGINT');
    shell.eval(code + '\n', shell.context, `cell ${count}`, (error, value) => (error ? reject(error) : resolve([value])));
    process.on('SIGINT', onInterrupt);
  });
}

async function run(shell, request, count, isTyped) {
  const aborted = new Promise((_, reject) => {
    interrupt = () => reject(INTERRUPTED);
    failed = reject;
  });
  aborted.catch(() => {});
  const code = withoutImports(isTyped ? withoutTypes(request.code) : request.code);
  const [value] = await Promise.race([evaluate(shell, code, count), aborted]);
  // Cells often end with the call of an asynchronous function: its value is what was meant.
  const settled = util.types.isPromise(value) ? await Promise.race([value, aborted]) : value;
  if (settled !== undefined) event({ type: 'result', is_main_result: true, ...(await shown(settled)) });
}

async function cell(shell, request, count, isTyped) {
  const earlier = new Map(Object.keys(request.env ?? {}).map((name) => [name, process.env[name]]));
  Object.assign(process.env, request.env ?? {});
  try {
    await run(shell, request, count, isTyped);
  } catch (error) {
    if (isTyped && !Module.stripTypeScriptTypes && error?.name === 'SyntaxError') {
      error.message += ` (types need Node 22.13 or later in the box; this is ${process.version})`;
    }
    tell(error);
  }
  [interrupt, failed] = [() => {}, null];
  for (const [name, value] of earlier) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
}

function started() {
  takeStreams();
  process.on('SIGINT', onInterrupt);
  const late = (error) => (failed ? failed(error) : process.stderr.write(`Uncaught ${util.inspect(error)}\n`));
  process.on('uncaughtException', late);
  process.on('unhandledRejection', late);
  const nowhere = new Writable({ write: (_, __, done) => done() });
  const input = new Readable({ read() {} });
  const shell = repl.start({ input, output: nowhere, prompt: '', terminal: false, useGlobal: true, breakEvalOnSigint: true });
  // Some versions of Node report what a cell throws to the shell's domain only.
  shell._domain?.removeAllListeners('error');
  shell._domain?.on('error', late);
  globalThis.require = Module.createRequire(path.join(process.cwd(), 'cell'));
  globalThis.display = async (value) => event({ type: 'result', is_main_result: false, ...(await shown(value)) });
  return shell;
}

function requestOf(line) {
  try {
    return parse(line);
  } catch {
    return null;
  }
}

async function serve(requests) {
  const shell = started();
  let count = 0;
  both('b', '0 0');
  for await (const line of requests) {
    const request = requestOf(line);
    if (!request) continue; // an unfinished line
    count += 1;
    both('b', `${request.id} ${count}`);
    await cell(shell, request, count, language === 'typescript');
    both('e', `${request.id} 0`);
  }
  process.exit(0);
}

serve(requests);
