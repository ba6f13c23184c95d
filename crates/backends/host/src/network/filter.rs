//! Rules of the kernel's packet filter (nf_tables) as messages of netlink, for what leaves one network namespace.
//!
//! Written by hand so that a box costs no program of the host: `nft` takes longer than everything else about a veth pair.

use super::message::Message;

/// The packet filter's number among the parts of netfilter.
const NF_TABLES: u16 = 10;

/// Tables for IPv4 and IPv6 at once.
const INET: u8 = 1;

/// How many addresses go into one message. The length of an attribute has 16 bits.
const ELEMENTS_MAX: usize = 1000;

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = 0;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const NEW_SET: u16 = 9;
const NEW_ELEMENTS: u16 = 12;
const DELETE_ELEMENTS: u16 = 14;

/// The register that every expression here uses, and the one of verdicts.
const REGISTER: u32 = 1;
const VERDICT: u32 = 0;

/// Inside of an attribute that holds data: a value, or a verdict.
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;

/// One step of a rule. A rule goes on only while its comparisons hold.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Loads a fact about the packet.
    Load(Fact),
    /// Compares what was loaded.
    Equals(Vec<u8>),
    /// Looks whether what was loaded is between two values, both included.
    Between(Vec<u8>, Vec<u8>),
    /// Looks whether what was loaded is in a set.
    In(&'static str),
    /// Lets the packet out.
    Accept,
    /// Refuses the packet, and notifies the sender.
    Reject,
}

/// A fact about a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fact {
    /// The number of the interface that it leaves by.
    OutInterface,
    /// The number of the address family.
    Family,
    /// The number of the protocol above IP.
    Protocol,
    /// Where it goes to, by IPv4.
    Destination4,
    /// Where it goes to, by IPv6.
    Destination6,
    /// The port that it goes to, for protocols that have ports.
    DestinationPort,
    /// The type of a message of ICMP.
    IcmpType,
}

/// Changes that are made together or not at all, in one table.
#[derive(Debug)]
pub(super) struct Batch {
    table: &'static str,
    bytes: Vec<u8>,
    /// Where the last message begins.
    last: usize,
    sets: u32,
}

impl Batch {
    pub(super) fn new(table: &'static str) -> Self {
        Self { table, bytes: control(BATCH_BEGIN), last: 0, sets: 0 }
    }

    /// Makes the table. The batch fails with `EEXIST` if it is there.
    pub(super) fn make_table(&mut self) {
        self.add(NEW_TABLE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, |_| {});
    }

    /// Makes a set for values of this length. The kernel keeps `kind` for programs that show the set.
    pub(super) fn make_set(&mut self, name: &str, kind: u32, length: u32) {
        self.sets += 1;
        let id = self.sets;
        self.add(NEW_SET, libc::NLM_F_CREATE, |set| {
            number(set.text(2, name), 3, 0);
            number(number(number(set, 4, kind), 5, length), 10, id);
        });
    }

    /// Gives a set other elements.
    pub(super) fn replace_elements(&mut self, set: &str, elements: &[Vec<u8>]) {
        self.add(DELETE_ELEMENTS, 0, |flush| {
            flush.text(2, set);
        });
        for some in elements.chunks(ELEMENTS_MAX) {
            self.add(NEW_ELEMENTS, libc::NLM_F_CREATE, |message| {
                message.text(2, set).nested(3, |list| {
                    for element in some {
                        list.nested(1, |one| nested_value(one, 1, element));
                    }
                });
            });
        }
    }

    /// Makes a chain that is asked about everything that leaves, and accepts what no rule decides.
    pub(super) fn make_output_chain(&mut self, name: &str) {
        const LOCAL_OUT: u32 = 3;
        const POLICY_ACCEPT: u32 = 1;
        self.add(NEW_CHAIN, libc::NLM_F_CREATE, |chain| {
            chain.text(3, name).nested(4, |hook| {
                number(number(hook, 1, LOCAL_OUT), 2, 0);
            });
            number(chain, 5, POLICY_ACCEPT).text(7, "filter");
        });
    }

    /// Adds a rule to the end of a chain.
    pub(super) fn add_rule(&mut self, chain: &str, steps: &[Step]) {
        self.add(NEW_RULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, |rule| {
            rule.text(2, chain).nested(4, |list| {
                for step in steps {
                    list.nested(1, |element| step.write(element));
                }
            });
        });
    }

    /// The bytes to be sent. The kernel answers once: with the first error, or that the last change was made.
    pub(super) fn finish(mut self) -> Vec<u8> {
        const FLAGS_AT: usize = 6;
        const ACKNOWLEDGE: u16 = 4;
        for (byte, flag) in self.bytes[self.last + FLAGS_AT..].iter_mut().zip(ACKNOWLEDGE.to_ne_bytes()) {
            *byte |= flag;
        }
        self.bytes.extend(control(BATCH_END));
        self.bytes
    }

    /// Every message begins with the family and the name of the table.
    fn add(&mut self, kind: u16, flags: i32, fill: impl FnOnce(&mut Message)) {
        let mut message = Message::silent(NF_TABLES << 8 | kind, flags);
        message.fixed(&[INET, 0, 0, 0]).text(1, self.table);
        fill(&mut message);
        self.last = self.bytes.len();
        self.bytes.extend(message.finish());
    }
}

impl Step {
    fn write(&self, element: &mut Message) {
        const EQUAL: u32 = 0;
        match self {
            Self::Load(fact) => fact.write(element),
            Self::Equals(expected) => expression(element, "cmp", |data| {
                number(number(data, 1, REGISTER), 2, EQUAL);
                nested_value(data, 3, expected);
            }),
            Self::Between(first, last) => expression(element, "range", |data| {
                number(number(data, 1, REGISTER), 2, EQUAL);
                nested_value(data, 3, first);
                nested_value(data, 4, last);
            }),
            Self::In(set) => expression(element, "lookup", |data| {
                number(data.text(1, set), 2, REGISTER);
            }),
            Self::Accept => expression(element, "immediate", |data| {
                const ACCEPT: u32 = 1;
                number(data, 1, VERDICT).nested(2, |inside| {
                    inside.nested(DATA_VERDICT, |verdict| {
                        number(verdict, 1, ACCEPT);
                    });
                });
            }),
            Self::Reject => expression(element, "reject", |data| {
                const ICMP_OF_EITHER_FAMILY: u32 = 2;
                const PROHIBITED: u8 = 3;
                number(data, 1, ICMP_OF_EITHER_FAMILY).bytes(2, &[PROHIBITED]);
            }),
        }
    }
}

impl Fact {
    fn write(self, element: &mut Message) {
        const NETWORK_HEADER: u32 = 1;
        const TRANSPORT_HEADER: u32 = 2;
        let meta = |element: &mut Message, key: u32| {
            expression(element, "meta", |data| {
                number(number(data, 1, REGISTER), 2, key);
            });
        };
        let (base, offset, length) = match self {
            Self::OutInterface => return meta(element, 5),
            Self::Family => return meta(element, 15),
            Self::Protocol => return meta(element, 16),
            Self::Destination4 => (NETWORK_HEADER, 16, 4),
            Self::Destination6 => (NETWORK_HEADER, 24, 16),
            Self::DestinationPort => (TRANSPORT_HEADER, 2, 2),
            Self::IcmpType => (TRANSPORT_HEADER, 0, 1),
        };
        expression(element, "payload", |data| {
            number(number(number(number(data, 1, REGISTER), 2, base), 3, offset), 4, length);
        });
    }
}

/// Writes an expression, by the kernel's name for it.
fn expression(element: &mut Message, name: &str, fill: impl FnOnce(&mut Message)) {
    element.text(1, name).nested(2, fill);
}

/// Adds an attribute that holds a value inside of another attribute.
fn nested_value(message: &mut Message, kind: u16, value: &[u8]) {
    message.nested(kind, |inside| {
        inside.bytes(DATA_VALUE, value);
    });
}

/// Adds an attribute that is a number, which the packet filter wants in the order of the network.
fn number(message: &mut Message, kind: u16, value: u32) -> &mut Message {
    message.bytes(kind, &value.to_be_bytes())
}

/// A message that begins or ends a batch.
fn control(kind: u16) -> Vec<u8> {
    let mut message = Message::question(kind);
    message.fixed(&[0, 0]).fixed(&NF_TABLES.to_be_bytes());
    message.finish()
}
