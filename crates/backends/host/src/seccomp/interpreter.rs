//! A small interpreter of classic BPF, so that tests ask the programs themselves and not the table that they came from.

/// A call as the filter sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) architecture: u32,
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
}

/// What a filter said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    /// As given back to the kernel.
    pub(super) action: u32,
    /// Whether an argument was looked at on the way.
    pub(super) looked_at_arguments: bool,
}

/// `AUDIT_ARCH_X86_64`.
pub(super) const X86_64: u32 = 0xC000_003E;
/// `AUDIT_ARCH_I386`.
pub(super) const I386: u32 = 0x4000_0003;

const NEVER_ENDS: &str = "a program ends with a return";

/// Runs one program, which must be well-formed: only instructions that our compiler makes.
pub(super) fn run(program: &[u8], call: Call) -> Outcome {
    let mut data = Vec::new();
    data.extend(call.number.to_le_bytes());
    data.extend(call.architecture.to_le_bytes());
    data.extend(0_u64.to_le_bytes());
    data.extend(call.arguments.iter().flat_map(|argument| argument.to_le_bytes()));

    let (mut position, mut accumulator, mut looked_at_arguments) = (0_usize, 0_u32, false);
    loop {
        let [c0, c1, if_true, if_false, k0, k1, k2, k3] = *program[position * 8..].first_chunk().expect(NEVER_ENDS);
        let operand = u32::from_le_bytes([k0, k1, k2, k3]);
        let branch = |condition: bool| usize::from(if condition { if_true } else { if_false });
        position += 1;
        match u16::from_le_bytes([c0, c1]) {
            0x20 => {
                let offset = operand as usize;
                looked_at_arguments |= offset >= 16;
                accumulator = u32::from_le_bytes(*data[offset..].first_chunk().expect("within seccomp_data"));
            }
            0x54 => accumulator &= operand,
            0x05 => position += operand as usize,
            0x15 => position += branch(accumulator == operand),
            0x35 => position += branch(accumulator >= operand),
            0x06 => return Outcome { action: operand, looked_at_arguments },
            code => panic!("instruction {code:#x} is not used by the compiler"),
        }
    }
}
