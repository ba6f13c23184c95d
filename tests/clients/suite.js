// A list of named cases, run one after the other, with one line for each, in the form of the other suites of this repository.
// Drivers find this file beside their own: it is copied there where they are run.

// When a case counts as hanging. Only a guard.
const LIMIT_MS = 120_000;

/** All cases: `{name, needs, run}`. */
export const CASES = [];

/** Registers a case. Without the features in `needs`, it does not exist for a client. */
export function test(name, needs, run) {
  CASES.push({ name, needs, run });
}

/** The case cannot run here; the reason is printed and counted, never hidden. */
export class Skip extends Error {}

/** Runs cases and counts. */
export class Suite {
  constructor(name) {
    this.name = name;
    this.passed = 0;
    this.failed = 0;
    this.skipped = 0;
  }

  /** Runs one case; a failure or a hang is the failure of that case alone. */
  async run(each, desk) {
    const name = `${this.name}/${each.name}`;
    try {
      await within(LIMIT_MS, each.run(desk));
      this.passed += 1;
      console.log(`ok ${name}`);
    } catch (error) {
      if (error instanceof Skip) {
        this.skipped += 1;
        console.log(`skipped: ${name}: ${error.message}`);
        return;
      }
      console.log(error?.stack);
      this.fail(name, error);
    }
  }

  /** Counts a failure and says why on one line. */
  fail(name, error) {
    this.failed += 1;
    console.log(`FAILED ${name}: ${String(error?.message ?? error).replace(/\s+/g, " ").slice(0, 600)}`);
  }

  /** Prints the last line; returns the exit code. */
  finish() {
    console.log(`suite-result: passed=${this.passed} failed=${this.failed} skipped=${this.skipped}`);
    return this.failed ? 1 : 0;
  }
}

/** Holds a condition, named by what it says. */
export function holds(condition, what) {
  if (!condition) throw new Error(what);
}

/** Holds that two things are equal as JSON, and shows both when they are not. */
export function equal(found, expected, what) {
  const [left, right] = [JSON.stringify(found), JSON.stringify(expected)];
  holds(left === right, `${what} is ${left}, not ${right}`);
}

/** Holds that exactly this class is thrown, with all parts in its text. Returns the error. */
export async function raises(kind, work, ...parts) {
  let value;
  try {
    value = await work;
  } catch (error) {
    holds(error?.constructor === kind, `threw ${error?.constructor?.name}: ${error?.message}, not ${kind.name}`);
    for (const part of parts) holds(error.message.includes(part), `${part} is not in ${error.message}`);
    return error;
  }
  throw new Error(`returned ${JSON.stringify(value)} instead of throwing ${kind.name}`);
}

/** Asks again until the condition gives something true, and returns it. */
export async function until(condition, what, limitMs = 60_000) {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const found = await condition();
    if (found) return found;
    holds(Date.now() < deadline, `it did not come to this: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function within(limitMs, work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not finished after ${limitMs / 1000} s`)), limitMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
