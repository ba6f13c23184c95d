//! What the kernel is asked about networks without a program in between: links, addresses, routes, and how often the packet rules were changed.
//!
//! A conversation is about the network namespace in which it was begun. The kernel answers each request before the next one is sent.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use box_core::{Error, Result};
use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NlasIterator, parse_u32_be,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

/// A conversation about links, addresses and routes.
#[derive(Debug)]
pub(super) struct Links(Socket);

impl Links {
    pub(super) fn open() -> Result<Self> {
        socket(NETLINK_ROUTE).map(Self).map_err(|source| Error::io("speak with the kernel about links", source))
    }

    /// Makes a cable: one end here, up, the other in another namespace, where the kernel lets it come up only afterwards.
    pub(super) fn add_cable(&self, name: &str, other: &str, elsewhere: BorrowedFd<'_>) -> io::Result<()> {
        let mut far = LinkMessage::default();
        far.attributes = vec![LinkAttribute::IfName(other.to_owned()), LinkAttribute::NetNsFd(elsewhere.as_raw_fd())];
        let mut near = named(name);
        (near.header.flags, near.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
        let kind = [LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far)))];
        near.attributes.push(LinkAttribute::LinkInfo(kind.to_vec()));
        self.ask(RouteNetlinkMessage::NewLink(near), NLM_F_CREATE | NLM_F_EXCL)
    }

    pub(super) fn raise(&self, name: &str) -> io::Result<()> {
        self.switch(self.index(name)?, LinkFlags::Up)
    }

    pub(super) fn lower(&self, index: u32) -> io::Result<()> {
        self.switch(index, LinkFlags::empty())
    }

    fn switch(&self, index: u32, flags: LinkFlags) -> io::Result<()> {
        let mut link = numbered(index);
        (link.header.flags, link.header.change_mask) = (flags, LinkFlags::Up);
        self.ask(RouteNetlinkMessage::SetLink(link), 0)
    }

    pub(super) fn delete(&self, index: u32) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::DelLink(numbered(index)), 0)
    }

    pub(super) fn add_address(&self, name: &str, address: Ipv4Addr, bits: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = bits;
        message.header.scope = AddressScope::Universe;
        message.header.flags = AddressHeaderFlags::empty();
        message.header.index = self.index(name)?;
        let address = IpAddr::V4(address);
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.ask(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    pub(super) fn add_default_route(&self, name: &str, gateway: Ipv4Addr) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = libc::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Boot;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes =
            vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway)), RouteAttribute::Oif(self.index(name)?)];
        self.ask(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// What the link of this number is called, if it is there.
    pub(super) fn name(&self, index: u32) -> Option<String> {
        rustix::net::netdevice::index_to_name(self.0.as_fd(), index).ok()
    }

    /// The number of a link, which no other one ever gets.
    pub(super) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(self.0.as_fd(), name)?)
    }

    fn ask(&self, question: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(question));
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let answer = exchange(&self.0, &bytes)?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::Error(told) if told.code.is_none() => Ok(()),
            NetlinkPayload::Error(told) => Err(told.to_io()),
            other => Err(io::Error::other(format!("the kernel answered a request with {other:?}"))),
        }
    }
}

/// How many times the packet rules of this namespace were changed, by whomever; nothing where the kernel does not say.
pub(super) fn rules_generation() -> Option<u32> {
    /// The packet filter's part of the kernel, and its two messages about this.
    const ASK: u16 = 10 << 8 | 16;
    const TELL: u16 = 10 << 8 | 15;
    /// Family, version and resource, which such a question leaves empty.
    const FAMILY_BYTES: usize = 4;
    const GENERATION: u16 = 1;
    let mut header = NetlinkHeader::default();
    (header.message_type, header.flags) = (ASK, NLM_F_REQUEST);
    let mut question = vec![0; header.buffer_len() + FAMILY_BYTES];
    header.length = u32::try_from(question.len()).ok()?;
    header.emit(&mut question);
    let answer = exchange(&socket(NETLINK_NETFILTER).ok()?, &question).ok()?;
    let answer = NetlinkBuffer::new_checked(&answer).ok().filter(|answer| answer.message_type() == TELL)?;
    let mut attributes = NlasIterator::new(answer.payload().get(FAMILY_BYTES..)?).flatten();
    parse_u32_be(attributes.find(|attribute| attribute.kind() == GENERATION)?.value()).ok()
}

fn numbered(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}

fn named(name: &str) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    link
}

fn socket(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

fn exchange(socket: &Socket, question: &[u8]) -> io::Result<Vec<u8>> {
    socket.send(question, 0)?;
    Ok(socket.recv_from_full()?.0)
}
