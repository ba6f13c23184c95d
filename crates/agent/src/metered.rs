//! Reads archives of strangers, whose headers may claim to be of any length.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Input that ends when more was read than may be before something is known of it.
#[derive(Debug)]
pub(crate) struct Metered<R> {
    pub(crate) input: R,
    pub(crate) allowance: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(bytes)?;
        match self.allowance.get().checked_sub(count as u64) {
            Some(left) => self.allowance.set(left),
            None => return Err(io::Error::other("the header of an entry is too long")),
        }
        Ok(count)
    }
}
