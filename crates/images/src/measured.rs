//! A reader that reports progress.

use std::io::{self, Read};

use box_core::{Progress, PullStep};

/// Bytes between two progress reports.
const STEP_BYTES: u64 = 4 << 20;

/// The operation, and how much of it was done before.
pub(crate) struct Measure<'a> {
    pub(crate) progress: &'a Progress,
    /// Its label.
    pub(crate) part: &'static str,
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
}

impl Measure<'_> {
    /// Reports progress.
    pub(crate) fn tell(&self, more_bytes: u64) {
        // The file may grow; never report more than the total.
        let done_bytes = self.done_bytes.saturating_add(more_bytes).min(self.total_bytes);
        (self.progress)(&PullStep { part: self.part.to_owned(), done_bytes, total_bytes: Some(self.total_bytes) });
    }
}

/// A reader that reports progress.
pub(crate) struct Measured<'a, R> {
    inner: R,
    measure: Measure<'a>,
    read_bytes: u64,
    told_bytes: u64,
}

impl<'a, R: Read> Measured<'a, R> {
    pub(crate) fn new(inner: R, measure: Measure<'a>) -> Self {
        measure.tell(0);
        Self { inner, measure, read_bytes: 0, told_bytes: 0 }
    }
}

impl<R: Read> Read for Measured<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read_bytes += count as u64;
        let is_end = count == 0 && !buffer.is_empty() && self.read_bytes > self.told_bytes;
        if is_end || self.read_bytes - self.told_bytes >= STEP_BYTES {
            self.told_bytes = self.read_bytes;
            self.measure.tell(self.read_bytes);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_reader_tells_its_beginning_now_and_then_and_its_end() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&told);
        let progress: Progress = Arc::new(move |step| kept.lock().unwrap().push((step.done_bytes, step.total_bytes)));
        let length = 2 * STEP_BYTES + 5;
        let measure = Measure { progress: &progress, part: "copying", done_bytes: 7, total_bytes: length + 7 };
        let read = io::copy(&mut Measured::new(io::repeat(0).take(length), measure), &mut io::sink()).unwrap();
        assert_eq!(read, length);
        let told = told.lock().unwrap();
        assert_eq!((told[0].0, told.last().unwrap().0), (7, length + 7));
        assert!(told.len() <= 5 && told.is_sorted() && told.iter().all(|(_, total)| *total == Some(length + 7)));
    }
}
