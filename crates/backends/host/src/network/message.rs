//! Messages of netlink as bytes: a header, a fixed part, and attributes that may hold others.

/// Length, type, flags, number and sender.
const HEADER_BYTES: usize = 16;

/// Length and kind of an attribute.
const ATTRIBUTE_BYTES: usize = 4;

/// Everything begins at a multiple of this.
const ALIGNMENT: usize = 4;

/// The lower bits of an attribute's kind; the upper ones say what it holds.
const KIND_MASK: u16 = 0x3fff;

/// A request.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A request that the kernel acknowledges.
    pub(super) fn new(kind: u16, flags: i32) -> Self {
        Self::with_flags(kind, libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags)
    }

    /// A request that the kernel answers, and hence does not acknowledge.
    pub(super) fn question(kind: u16) -> Self {
        Self::with_flags(kind, libc::NLM_F_REQUEST)
    }

    /// A request that the kernel says nothing about unless it fails.
    pub(super) fn silent(kind: u16, flags: i32) -> Self {
        Self::with_flags(kind, libc::NLM_F_REQUEST | flags)
    }

    fn with_flags(kind: u16, flags: i32) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        // The flags of a message have 16 bits.
        bytes[6..8].copy_from_slice(&u16::try_from(flags).unwrap_or_default().to_ne_bytes());
        Self(bytes)
    }

    /// Adds a fixed part.
    pub(super) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds the fixed part of a link: its number, its flags, and which of them are to be changed.
    pub(super) fn link(&mut self, index: u32, flags: u32, changed: u32) -> &mut Self {
        self.fixed(&[0; 4]).fixed(&index.to_ne_bytes()).fixed(&flags.to_ne_bytes()).fixed(&changed.to_ne_bytes())
    }

    /// Adds the fixed part of an IPv4 address of a link.
    pub(super) fn address(&mut self, prefix_bits: u8, index: u32) -> &mut Self {
        self.fixed(&[IPV4, prefix_bits, 0, libc::RT_SCOPE_UNIVERSE]).fixed(&index.to_ne_bytes())
    }

    /// Adds the fixed part of an IPv4 route to everywhere.
    pub(super) fn route(&mut self) -> &mut Self {
        let (table, kind) = (libc::RT_TABLE_MAIN, libc::RTN_UNICAST);
        self.fixed(&[IPV4, 0, 0, 0, table, libc::RTPROT_BOOT, libc::RT_SCOPE_UNIVERSE, kind]).fixed(&[0; 4])
    }

    /// Adds an attribute.
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.nested(kind, |inside| {
            inside.fixed(value);
        })
    }

    /// Adds an attribute that is a text.
    pub(super) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.nested(kind, |inside| {
            inside.fixed(value.as_bytes()).fixed(&[0]);
        })
    }

    /// Adds an attribute that holds others.
    pub(super) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; ATTRIBUTE_BYTES]);
        fill(self);
        // What is written here is a few hundred bytes long.
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    /// The bytes to be sent.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// The address family as messages name it.
const IPV4: u8 = 2;

/// What an acknowledgement says: 0, or the negative number of an error. None for another message.
pub(super) fn error_code(message: &[u8]) -> Option<i32> {
    let payload = payload(message, u16::try_from(libc::NLMSG_ERROR).ok()?)?;
    Some(i32::from_ne_bytes(payload.get(..4)?.try_into().ok()?))
}

/// The value of an attribute of a message of this type, behind its fixed part.
pub(super) fn attribute(message: &[u8], message_type: u16, fixed_bytes: usize, kind: u16) -> Option<&[u8]> {
    let mut rest = payload(message, message_type)?.get(fixed_bytes..)?;
    loop {
        let length = usize::from(number(rest, 0)?);
        let value = rest.get(ATTRIBUTE_BYTES..length)?;
        if number(rest, 2)? & KIND_MASK == kind {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..)?;
    }
}

fn payload(message: &[u8], message_type: u16) -> Option<&[u8]> {
    (number(message, 4)? == message_type).then(|| message.get(HEADER_BYTES..))?
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_aligned_and_found_again() {
        let mut message = Message::new(16, libc::NLM_F_CREATE);
        message.link(7, 1, 1).text(3, "sbx").nested(18, |inside| {
            inside.bytes(1, &[1, 2, 3, 4, 5]);
        });
        let bytes = message.finish();
        assert_eq!(bytes.len() % ALIGNMENT, 0);
        assert_eq!(bytes[..4], u32::try_from(bytes.len()).unwrap().to_ne_bytes());
        assert_eq!(attribute(&bytes, 16, 16, 3), Some(&b"sbx\0"[..]));
        assert_eq!(attribute(&bytes, 16, 16, 18).map(<[u8]>::len), Some(12));
        assert_eq!(attribute(&bytes, 16, 16, 99), None);
        assert_eq!(attribute(&bytes, 17, 16, 3), None);
    }

    #[test]
    fn answers_that_are_cut_are_refused_and_read_nowhere_else() {
        let mut message = Message::question(2);
        message.fixed(&(-17_i32).to_ne_bytes());
        let bytes = message.finish();
        assert_eq!(error_code(&bytes), Some(-17));
        for length in 0..bytes.len() {
            assert_eq!(error_code(&bytes[..length]), None, "{length}");
        }
        // An attribute that says that it is shorter than its own head.
        let mut lies = Message::question(2);
        lies.fixed(&[1, 0, 9, 0]);
        assert_eq!(attribute(&lies.finish(), 2, 0, 1), None);
    }
}
