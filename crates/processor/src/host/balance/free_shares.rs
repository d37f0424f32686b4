//! Divides free leases among hosts, so that hosts which see the same leases do not race for them. Pure.
//!
//! This is consistent hashing with bounded loads: hosts and leases are points on a ring, and a lease belongs to the next
//! host that has room. Hosts never see quite the same; one host or lease more changes only the shares of a few.

use super::scramble::scramble;

/// How many points of the ring a lease tries before it goes to the next host with room, wherever that is. Each further
/// point fills the shares more evenly.
const POINTS: u64 = 8;

/// Which host each lease is for, as a place in `hosts`, which are names with the number of leases that each has room for;
/// `None` if no host has room.
pub(super) fn divide<'a>(leases: impl Iterator<Item = &'a str>, hosts: &[(&str, usize)]) -> Vec<Option<usize>> {
    let mut ring = Ring::new(hosts);
    let mut leases: Vec<Point<'a>> =
        leases.enumerate().map(|(place, token)| Point { hash: scramble(token, 0), token, place }).collect();
    // The result must not depend on the order in which leases are listed.
    leases.sort_unstable_by(|a, b| (a.hash, a.token).cmp(&(b.hash, b.token)));
    let mut shares = vec![None; leases.len()];
    for attempt in 0..POINTS {
        leases.retain(|lease| {
            shares[lease.place] = ring.take_at(scramble(lease.token, attempt));
            shares[lease.place].is_none()
        });
    }
    for lease in leases {
        shares[lease.place] = ring.take_after(lease.hash);
    }
    shares
}

struct Point<'a> {
    hash: u64,
    token: &'a str,
    /// The place among all leases.
    place: usize,
}

/// Hosts with room, by hash.
struct Ring {
    points: Vec<HostPoint>,
    /// For each point the next one that may have room, itself included; shortened on the way.
    next: Vec<usize>,
    /// The room of all hosts.
    room: usize,
}

struct HostPoint {
    hash: u64,
    /// The place among all hosts.
    host: usize,
    room: usize,
}

impl Ring {
    fn new(hosts: &[(&str, usize)]) -> Self {
        let with_room = hosts.iter().enumerate().filter(|(_, (_, room))| *room > 0);
        let mut points: Vec<HostPoint> =
            with_room.map(|(host, (name, room))| HostPoint { hash: scramble(name, 0), host, room: *room }).collect();
        points.sort_unstable_by_key(|point| (point.hash, point.host));
        let next = (0..points.len()).collect();
        let room = points.iter().map(|point| point.room).sum();
        Self { points, next, room }
    }

    /// The point that follows a hash.
    fn after(&self, hash: u64) -> usize {
        let at = self.points.partition_point(|point| point.hash < hash);
        if at == self.points.len() { 0 } else { at }
    }

    /// Takes room of the host that follows a hash, if it has any.
    fn take_at(&mut self, hash: u64) -> Option<usize> {
        let at = self.after(hash);
        self.take(at)
    }

    /// Takes room of the first host with any that follows a hash.
    fn take_after(&mut self, hash: u64) -> Option<usize> {
        let mut at = self.after(hash);
        while self.room > 0 {
            let following = self.next[at];
            if following != at {
                // Halves the way for those that come later.
                self.next[at] = self.next[following];
                at = following;
            } else if let Some(host) = self.take(at) {
                return Some(host);
            } else {
                self.next[at] = (at + 1) % self.points.len();
            }
        }
        None
    }

    fn take(&mut self, at: usize) -> Option<usize> {
        let point = self.points.get_mut(at)?;
        point.room = point.room.checked_sub(1)?;
        self.room -= 1;
        Some(point.host)
    }
}
