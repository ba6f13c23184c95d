//! The request of a client, and its encoding. The client is untrusted.

use std::ffi::CString;

use box_wire::{User, limits};

/// Bytes of the numbers before the strings: user, group, terminal, and how many strings are arguments.
const NUMBERS_BYTES: usize = 16;

/// Longest request: a command and its environment, and where it runs.
pub(super) const REQUEST_BYTES_MAX: usize = limits::COMMAND_BYTES_MAX + limits::PATH_BYTES_MAX + NUMBERS_BYTES;

/// A command that a process of the box asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The user to run it as.
    pub(crate) user: User,
    /// Whether its standard input becomes its controlling terminal.
    pub(crate) controlling: bool,
    /// The working directory.
    pub(crate) cwd: CString,
    /// The program, looked up in `PATH` of the environment unless it holds a slash.
    pub(crate) program: CString,
    /// The program's arguments, with its own name first.
    pub(crate) arguments: Vec<CString>,
    /// `NAME=value`, in order.
    pub(crate) environment: Vec<CString>,
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.arguments.len()).unwrap_or(u32::MAX);
        let numbers = [self.user.uid, self.user.gid, u32::from(self.controlling), count];
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
        let strings = [&self.cwd, &self.program].into_iter().chain(&self.arguments).chain(&self.environment);
        for string in strings {
            bytes.extend_from_slice(string.as_bytes_with_nul());
        }
        bytes
    }

    /// Reads a request. The error says what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut rest = bytes;
        let mut number = || {
            let (four, after) = rest.split_first_chunk::<4>()?;
            rest = after;
            Some(u32::from_le_bytes(*four))
        };
        let numbers = number().zip(number()).zip(number().zip(number()));
        let ((uid, gid), (controlling, count)) = numbers.ok_or("a request that is too short")?;
        if uid.max(gid) > limits::GUEST_ID_MAX {
            return Err("a user or group that no box has");
        }
        let mut strings = Vec::new();
        while !rest.is_empty() {
            let end = memchr::memchr(0, rest).ok_or("a string without an end")?;
            strings.push(CString::new(&rest[..end]).map_err(|_| "a string without an end")?);
            rest = &rest[end + 1..];
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut strings = strings.into_iter();
        let (Some(cwd), Some(program)) = (strings.next(), strings.next()) else { return Err("no program") };
        if program.is_empty() || count == 0 || count > strings.len() {
            return Err("no program, or fewer arguments than announced");
        }
        let arguments = strings.by_ref().take(count).collect();
        let (user, controlling) = (User { uid, gid }, controlling != 0);
        Ok(Self { user, controlling, cwd, program, arguments, environment: strings.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> Request {
        let string = |text: &str| CString::new(text).unwrap();
        Request {
            user: User { uid: 0, gid: 7 },
            controlling: true,
            cwd: string("/tmp"),
            program: string("ls"),
            arguments: vec![string("ls"), string(""), string("-l")],
            environment: vec![string("A=b"), string("C=")],
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        assert_eq!(Request::decode(&request().encode()), Ok(request()));
        let bare = Request { arguments: vec![c"x".into()], environment: vec![], controlling: false, ..request() };
        assert_eq!(Request::decode(&bare.encode()), Ok(bare));
    }

    #[test]
    fn no_user_of_the_agent_and_no_damaged_request_is_taken() {
        for user in [User { uid: 65535, gid: 0 }, User { uid: 0, gid: 65535 }, User { uid: u32::MAX, gid: 0 }] {
            assert!(Request::decode(&Request { user, ..request() }.encode()).is_err(), "{user:?}");
        }
        let whole = request().encode();
        for end in 0..NUMBERS_BYTES + 8 {
            assert!(Request::decode(&whole[..end]).is_err(), "{end} bytes");
        }
        let mut more = whole.clone();
        more[12] = 200;
        assert!(Request::decode(&more).is_err(), "more arguments than there are");
        assert!(Request::decode(&whole[..whole.len() - 1]).is_err(), "the last string has no end");
        assert!(Request::decode(&Request { program: c"".into(), ..request() }.encode()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::decode(&bytes);
        }
    }
}
