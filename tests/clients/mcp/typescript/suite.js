// A list of named cases, run one after the other, with one line for each, in the form of the other suites of this repository.

// When a case counts as hanging. Only a guard.
const LIMIT_MS = 120_000;

/** All cases: `{name, needs, run}`. */
export const CASES = [];

/** Registers a case. Without the features in `needs`, it does not exist for a client. */
export function test(name, needs, run) {
  CASES.push({ name, needs, run });
}

/** Runs cases and counts. */
export class Suite {
  constructor(name) {
    this.name = name;
    this.passed = 0;
    this.failed = 0;
  }

  /** Runs one case; a failure or a hang is the failure of that case alone. */
  async run(each, desk) {
    const name = `${this.name}/${each.name}`;
    try {
      await within(LIMIT_MS, each.run(desk));
      this.passed += 1;
      console.log(`ok ${name}`);
    } catch (error) {
      this.failed += 1;
      console.log(error?.stack);
      console.log(`FAILED ${name}: ${String(error?.message ?? error).replace(/\s+/g, " ").slice(0, 600)}`);
    }
  }

  /** Prints the last line; returns the exit code. */
  finish() {
    console.log(`suite-result: passed=${this.passed} failed=${this.failed} skipped=0`);
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
