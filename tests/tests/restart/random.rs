//! Numbers that look random and come again with the same seed.

/// A small generator: xorshift, which is plenty for choosing steps and moments.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Begins at a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
