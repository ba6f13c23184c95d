//! Turns decisions into a classic BPF program.
//!
//! The program is a binary search over ranges of numbers with equal answers, not a chain of comparisons. That is worth
//! a compiler: when a filter is installed the kernel runs it once for every call number and compiles it, and every
//! command of a box installs it. A chain over this table (about 2,000 instructions) costs 0.9 ms; the search, 0.1 ms.

use std::collections::BTreeMap;

/// Size of one instruction.
pub(super) const INSTRUCTION_BYTES: usize = 8;

/// What a system call number answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Always the same.
    Always(Answer),
    /// The first rule that holds decides.
    ByArguments {
        /// In order.
        rules: &'static [Rule],
        /// When none holds.
        otherwise: Answer,
    },
}

/// What the kernel does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Carry it out.
    Allow,
    /// Not carry it out, and say this error number.
    Error(u16),
}

/// An answer under conditions that must all hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// All of them.
    pub(super) when: &'static [Condition],
    /// What then.
    pub(super) answer: Answer,
}

/// Holds when the low half of an argument, masked, has this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    /// Which argument, from 0.
    pub(super) argument: u32,
    /// Bits that count.
    pub(super) mask: u32,
    /// What they must be.
    pub(super) value: u32,
}

/// The answer that is this error number.
pub(super) const fn error(number: i32) -> Answer {
    // Error numbers of Linux end far below 4096, so the two low bytes are the whole number.
    let [low, high, ..] = number.to_le_bytes();
    Answer::Error(u16::from_le_bytes([low, high]))
}

/// The result of a call that is not in the table.
pub(super) const UNKNOWN: Decision = Decision::Always(error(libc::ENOSYS));

/// `AUDIT_ARCH_X86_64`: what the kernel calls the native table. x32 goes by the same name with larger numbers.
const ARCHITECTURE: u32 = 0xC000_003E;

// Where `struct seccomp_data` keeps what a filter can read.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;
const ARGUMENT_BYTES: u32 = 8;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JUMP_IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// One instruction, in the layout of `struct sock_filter`.
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u32,
    if_true: u8,
    if_false: u8,
    operand: u32,
}

/// Numbers from `start` to the next range's start.
struct Range {
    start: u32,
    decision: Decision,
}

/// The program that answers by these decisions, and by `otherwise` where there is none, as bytes for the kernel.
pub(super) fn program(decisions: &BTreeMap<u32, Decision>, otherwise: Decision) -> Vec<u8> {
    let mut code = vec![
        step(LOAD, ARCHITECTURE_OFFSET),
        Instruction { code: JUMP_IF_EQUAL, if_true: 1, if_false: 0, operand: ARCHITECTURE },
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        step(LOAD, NUMBER_OFFSET),
    ];
    code.extend(search(&ranges(decisions, otherwise)));
    code.iter().flat_map(|instruction| bytes(*instruction)).collect()
}

/// Joins neighbors with equal decisions. The first range starts at 0 and the last one is open to the top.
fn ranges(decisions: &BTreeMap<u32, Decision>, otherwise: Decision) -> Vec<Range> {
    let after_last = decisions.last_key_value().map_or(0, |(number, _)| number + 1);
    let mut ranges: Vec<Range> = Vec::new();
    for start in 0..=after_last {
        let decision = decisions.get(&start).copied().unwrap_or(otherwise);
        if ranges.last().is_none_or(|range| range.decision != decision) {
            ranges.push(Range { start, decision });
        }
    }
    ranges
}

/// Code that finds the range of the loaded number and answers. `ranges` is not empty.
fn search(ranges: &[Range]) -> Vec<Instruction> {
    if let [only] = ranges {
        return answer(only.decision);
    }
    let (below, from) = ranges.split_at(ranges.len() / 2);
    let below_code = search(below);
    let mut code = match u8::try_from(below_code.len()) {
        Ok(if_true) => vec![Instruction { code: JUMP_IF_AT_LEAST, if_true, if_false: 0, operand: from[0].start }],
        // A conditional jump reaches 255 instructions; an unconditional one goes as far as it likes.
        Err(_) => vec![
            Instruction { code: JUMP_IF_AT_LEAST, if_true: 0, if_false: 1, operand: from[0].start },
            step(JUMP, length(&below_code)),
        ],
    };
    code.extend(below_code);
    code.extend(search(from));
    code
}

fn answer(decision: Decision) -> Vec<Instruction> {
    match decision {
        Decision::Always(answer) => vec![end(answer)],
        Decision::ByArguments { rules, otherwise } => rules.iter().flat_map(check).chain([end(otherwise)]).collect(),
    }
}

/// Code that answers when all conditions hold, and else goes on behind itself.
fn check(rule: &Rule) -> Vec<Instruction> {
    let mut code = vec![end(rule.answer)];
    // Built from the end, because a condition must know how far it is to the next rule. Rules are short: the distance
    // stays far below 255, which the tests of the table would show otherwise.
    for condition in rule.when.iter().rev() {
        let if_false = u8::try_from(code.len()).unwrap_or(u8::MAX);
        let mut test = vec![step(LOAD, ARGUMENTS_OFFSET + condition.argument * ARGUMENT_BYTES)];
        if condition.mask != u32::MAX {
            test.push(step(AND, condition.mask));
        }
        test.push(Instruction { code: JUMP_IF_EQUAL, if_true: 0, if_false, operand: condition.value });
        test.extend(code);
        code = test;
    }
    code
}

fn end(answer: Answer) -> Instruction {
    match answer {
        Answer::Allow => step(RETURN, libc::SECCOMP_RET_ALLOW),
        Answer::Error(number) => step(RETURN, libc::SECCOMP_RET_ERRNO | u32::from(number)),
    }
}

fn step(code: u32, operand: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, operand }
}

fn length(code: &[Instruction]) -> u32 {
    u32::try_from(code.len()).unwrap_or(u32::MAX)
}

fn bytes(instruction: Instruction) -> [u8; INSTRUCTION_BYTES] {
    let [code_low, code_high, ..] = instruction.code.to_ne_bytes();
    let [a, b, c, d] = instruction.operand.to_ne_bytes();
    [code_low, code_high, instruction.if_true, instruction.if_false, a, b, c, d]
}
