//! Asks the kernel about networks without a program in between: links, addresses, routes, packet rules, and how often those were
//! changed.
//!
//! A socket belongs to the network namespace in which it was opened. The kernel answers each request before the next one is sent.
//! Six shapes of messages are needed, so they are written by hand: the crate that knows all of them took 18 seconds to compile.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use box_core::{Error, Result};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::message::{Message, attribute, error_code};

/// The protocol of links, addresses and routes has the number 0, which stands for none.
const ROUTE: Option<Protocol> = None;

/// A link is up.
const IFF_UP: u32 = 1;

/// Inside of `IFLA_LINKINFO`: the kind of a link, what else there is to say of it, and for a veth its other end.
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const INFO_PEER: u16 = 1;

/// More than the kernel ever answers here.
const ANSWER_BYTES_MAX: usize = 8192;

/// A socket for links, addresses and routes.
#[derive(Debug)]
pub(super) struct Links(OwnedFd);

impl Links {
    pub(super) fn open() -> Result<Self> {
        socket(ROUTE).map(Self).map_err(|source| Error::io("speak with the kernel about links", source))
    }

    /// Makes a veth pair: one end here, up, the other in another namespace, where the kernel lets it come up only afterwards.
    pub(super) fn add_veth(&self, name: &str, other: &str, elsewhere: BorrowedFd<'_>) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        message.link(0, IFF_UP, IFF_UP).text(libc::IFLA_IFNAME, name);
        message.nested(libc::IFLA_LINKINFO, |info| {
            info.text(INFO_KIND, "veth").nested(INFO_DATA, |data| {
                data.nested(INFO_PEER, |peer| {
                    let namespace = elsewhere.as_raw_fd().to_ne_bytes();
                    peer.link(0, 0, 0).text(libc::IFLA_IFNAME, other).bytes(libc::IFLA_NET_NS_FD, &namespace);
                });
            });
        });
        self.ask(message)
    }

    pub(super) fn raise(&self, name: &str) -> io::Result<()> {
        self.raise_index(self.index(name)?)
    }

    pub(super) fn raise_index(&self, index: u32) -> io::Result<()> {
        self.switch(index, IFF_UP)
    }

    pub(super) fn lower(&self, index: u32) -> io::Result<()> {
        self.switch(index, 0)
    }

    fn switch(&self, index: u32, flags: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_SETLINK, 0);
        message.link(index, flags, IFF_UP);
        self.ask(message)
    }

    pub(super) fn delete(&self, index: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_DELLINK, 0);
        message.link(index, 0, 0);
        self.ask(message)
    }

    pub(super) fn add_address(&self, name: &str, address: Ipv4Addr, bits: u8) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        message.address(bits, self.index(name)?);
        message.bytes(libc::IFA_LOCAL, &address.octets()).bytes(libc::IFA_ADDRESS, &address.octets());
        self.ask(message)
    }

    pub(super) fn add_default_route(&self, name: &str, gateway: Ipv4Addr) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        message.route();
        message.bytes(libc::RTA_GATEWAY, &gateway.octets()).bytes(libc::RTA_OIF, &self.index(name)?.to_ne_bytes());
        self.ask(message)
    }

    /// Whether a link is switched on.
    pub(super) fn is_up(&self, index: u32) -> io::Result<bool> {
        const FLAGS_AT: usize = 24;
        let mut message = Message::question(libc::RTM_GETLINK);
        message.link(index, 0, 0);
        let answer = exchange(&self.0, &message.finish())?;
        if let Some(code) = error_code(&answer) {
            return Err(io::Error::from_raw_os_error(-code));
        }
        let flags = answer.get(FLAGS_AT..FLAGS_AT + 4).and_then(|bytes| bytes.try_into().ok());
        flags.map(|bytes| u32::from_ne_bytes(bytes) & IFF_UP != 0).ok_or_else(|| rustix::io::Errno::PROTO.into())
    }

    /// The name of the link that has this number, if it is there.
    pub(super) fn name(&self, index: u32) -> Option<String> {
        rustix::net::netdevice::index_to_name(self.0.as_fd(), index).ok()
    }

    /// The number of a link, which no other one ever gets.
    pub(super) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(self.0.as_fd(), name)?)
    }

    fn ask(&self, message: Message) -> io::Result<()> {
        let answer = exchange(&self.0, &message.finish())?;
        match error_code(&answer) {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(-code)),
            None => Err(io::Error::other("unexpected answer of the kernel to a request about links")),
        }
    }
}

/// How many times the packet rules of this namespace were changed, by any program; none where the kernel does not say.
pub(super) fn rules_generation() -> Option<u32> {
    /// The packet filter's part of the kernel, and its two messages about this.
    const ASK: u16 = 10 << 8 | 16;
    const TELL: u16 = 10 << 8 | 15;
    /// Family, version and resource, which such a question leaves empty.
    const FAMILY_BYTES: usize = 4;
    const GENERATION: u16 = 1;
    let mut question = Message::question(ASK);
    question.fixed(&[0; FAMILY_BYTES]);
    let answer = exchange(&socket(Some(netlink::NETFILTER)).ok()?, &question.finish()).ok()?;
    let value = attribute(&answer, TELL, FAMILY_BYTES, GENERATION)?;
    Some(u32::from_be_bytes(value.try_into().ok()?))
}

/// Sends a batch to the packet filter of the namespace that this thread is in. Allocates nothing, so it may be called after a fork.
pub(super) fn change_rules(batch: &[u8]) -> io::Result<()> {
    let socket = socket(Some(netlink::NETFILTER))?;
    rustix::net::send(&socket, batch, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    match error_code(answer.get(..length).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(rustix::io::Errno::PROTO.into()),
    }
}

/// A socket that becomes readable when an address of this namespace comes or goes.
pub(super) fn address_changes() -> io::Result<OwnedFd> {
    const GROUPS_IPV4_AND_IPV6: u32 = 0x10 | 0x100;
    listen(ROUTE, GROUPS_IPV4_AND_IPV6)
}

/// A socket that becomes readable when packet rules of this namespace change. Needs root.
pub(super) fn rule_changes() -> io::Result<OwnedFd> {
    const GROUP_NF_TABLES: u32 = 1 << 6;
    listen(Some(netlink::NETFILTER), GROUP_NF_TABLES)
}

fn listen(protocol: Option<Protocol>, groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Reads and drops pending messages. Returns whether there were any, or too many for the buffer.
pub(super) fn drain(socket: &OwnedFd) -> bool {
    let mut told = false;
    let mut message = [0; 256];
    loop {
        match rustix::net::recv(socket, &mut message[..], RecvFlags::empty()) {
            Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => told = true,
            Err(_) => return told,
        }
    }
}

fn socket(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

fn exchange(socket: &OwnedFd, question: &[u8]) -> io::Result<Vec<u8>> {
    rustix::net::send(socket, question, SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let (length, _) = rustix::net::recv(socket, &mut answer[..], RecvFlags::empty())?;
    answer.truncate(length);
    Ok(answer)
}
