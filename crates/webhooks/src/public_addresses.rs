//! Which addresses a customer may have a service connect to.
//!
//! Promise: an address that is private, local or reserved is never public, in whichever of its
//! forms it comes. Otherwise a webhook would be a way into the network that the service runs in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IANA's special-purpose IPv4 blocks that are not globally reachable, and what can't be unicast:
/// <https://www.iana.org/assignments/iana-ipv4-special-registry>. And what a cloud serves inside
/// the host at an address of the public space.
const NOT_PUBLIC_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // carriers' NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // Azure's WireServer
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local: clouds' metadata services
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // relays to IPv6, withdrawn
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, broadcast
];

/// All of IPv6 that is unicast and global. Everything outside is local, multicast or unassigned.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// What is not public inside of it: <https://www.iana.org/assignments/iana-ipv6-special-registry>.
const NOT_PUBLIC_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4: holds any IPv4 address
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Blocks whose last 32 bits are an IPv4 address, which then decides: mapped addresses, and what a
/// network without IPv4 makes of it (NAT64, RFC 6052).
const HOLD_V4: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
];

/// Whether the address lies in the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !NOT_PUBLIC_V4
        .iter()
        .any(|(block, bits)| (address.to_bits() ^ block.to_bits()).leading_zeros() >= *bits)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let is_in = |(block, bits): &(Ipv6Addr, u32)| {
        (address.to_bits() ^ block.to_bits()).leading_zeros() >= *bits
    };
    if HOLD_V4.iter().any(is_in) {
        let [.., a, b, c, d] = address.octets();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    is_in(&GLOBAL_V6) && !NOT_PUBLIC_V6.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    #[test]
    fn the_first_and_the_last_address_of_each_special_block_are_not_public_and_its_neighbors_are() {
        let blocks = [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("168.63.129.16", "168.63.129.16"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.0.0.0", "192.0.0.255"),
            ("192.0.2.0", "192.0.2.255"),
            ("192.88.99.0", "192.88.99.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("198.51.100.0", "198.51.100.255"),
            ("203.0.113.0", "203.0.113.255"),
            ("224.0.0.0", "255.255.255.255"),
        ];
        for (first, last) in blocks {
            let [first, last] = [first, last].map(|one| one.parse::<Ipv4Addr>().unwrap());
            assert!(!is_public(first.into()), "{first}");
            assert!(!is_public(last.into()), "{last}");
            let before = first.to_bits().checked_sub(1);
            let after = last.to_bits().checked_add(1);
            for neighbor in [before, after].into_iter().flatten() {
                let neighbor = Ipv4Addr::from_bits(neighbor);
                assert!(is_public(neighbor.into()), "{neighbor}");
            }
        }
    }

    #[test]
    fn ipv6_is_public_only_where_it_is_global_unicast() {
        let private = ":: ::1 ::7f00:1 64:ff9b:1::1 100::1 1fff:ffff::1 2001::1 2001:1ff::1 \
                       2001:db8::1 2002:7f00:1:: 3fff::1 4000::1 5f00::1 fc00::1 fdff::1 fe80::1 \
                       fec0::1 ff02::1";
        for private in private.split(' ') {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in ["2001:200::1", "2600::1", "2a00:1450:4001::1", "3ffe::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn an_ipv4_address_inside_an_ipv6_address_decides() {
        for (private, public) in [
            ("::ffff:127.0.0.1", "::ffff:1.1.1.1"),
            ("::ffff:169.254.169.254", "::ffff:8.8.8.8"),
            ("64:ff9b::10.0.0.1", "64:ff9b::1.1.1.1"),
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }
}
