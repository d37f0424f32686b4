//! Plans of large fleets: the same as the definition says, and free leases without races.

use std::collections::{BTreeMap, BTreeSet};

use super::{super::*, Chance, lease, reference};

fn name(host: usize) -> String {
    format!("host-{host:04}")
}

/// Leases of some hosts, unevenly divided; a part is requested by others, paused, expired or of hosts that answer no
/// requests. `free` says how many in a hundred have no owner.
fn random_leases(chance: &mut Chance, hosts: usize, leases: usize, free: usize) -> Vec<LeaseView> {
    let one = |number| {
        // The lower of two draws: some hosts have many, some have none.
        let owner = name(chance.below(hosts).min(chance.below(hosts)));
        let owner = (!chance.percent(free)).then_some(owner);
        let requested_by = (owner.is_some() && chance.percent(10)).then(|| name(chance.below(hosts)));
        LeaseView {
            answers_requests: !chance.percent(5),
            available: !chance.percent(3),
            request_overdue: requested_by.is_some() && chance.percent(20),
            requested_by,
            ..lease(number, owner.as_deref())
        }
    };
    (0..leases).map(one).collect()
}

#[test]
fn plans_of_owned_leases_are_those_of_the_definition() {
    let sizes = [(3, 10, 40), (40, 400, 10), (7, 500, 10), (200, 150, 4), (200, 2000, 3)];
    for (hosts, count, rounds) in sizes {
        let mut chance = Chance((hosts * count) as u64);
        let mut moves = 0;
        for _ in 0..rounds {
            let leases = random_leases(&mut chance, hosts, count, 0);
            let me = name(chance.below(hosts));
            let leases: Vec<_> = leases
                .into_iter()
                .map(|lease| LeaseView { mine_running: lease.owner.as_deref() == Some(&me), ..lease })
                .collect();
            let max_leases = chance.percent(20).then(|| chance.below(2 * count / hosts + 2));
            let view = View { me: &me, leases: &leases, max_leases, shuffle: chance.next() };
            let planned = plan(&view);
            assert_eq!(planned, reference::plan(&view), "{hosts} hosts, {count} leases, {me}, {max_leases:?}");
            moves += planned.len();
        }
        assert!(moves > 0, "{hosts} hosts, {count} leases: nothing was compared");
    }
}

#[test]
fn hosts_that_see_the_same_leases_divide_the_free_ones_without_a_race() {
    for (hosts, count, free) in [(2, 100, 50), (10, 100, 30), (50, 500, 60), (100, 1000, 20), (30, 20, 100)] {
        let mut chance = Chance((hosts * count + free) as u64);
        let mut leases: Vec<LeaseView> = (0..count).map(|number| lease(number, Some(&name(number % hosts)))).collect();
        for lease in &mut leases {
            // Hosts are known by a request if they own nothing.
            if chance.percent(free) {
                lease.requested_by = lease.owner.take();
            }
        }
        let free: BTreeSet<_> = leases.iter().filter(|lease| lease.owner.is_none()).map(|lease| &lease.token).collect();
        let mut acquired = BTreeMap::new();
        let mut owned: BTreeMap<String, usize> = BTreeMap::new();
        for lease in &leases {
            for host in lease.owner.iter().chain(&lease.requested_by) {
                *owned.entry(host.clone()).or_default() += usize::from(lease.owner.is_some());
            }
        }
        for (me, owned) in &mut owned {
            let leases: Vec<_> = leases
                .iter()
                .map(|lease| LeaseView { mine_running: lease.owner.as_ref() == Some(me), ..lease.clone() })
                .collect();
            for one in plan(&View { me, leases: &leases, max_leases: None, shuffle: chance.next() }) {
                if let Move::Acquire(token) = one {
                    assert_eq!(acquired.insert(token, me.clone()), None, "two hosts go for one lease");
                    *owned += 1;
                }
            }
        }
        assert_eq!(acquired.keys().collect::<BTreeSet<_>>(), free, "{hosts} hosts, {count} leases: some are left");
        let (least, most) = (owned.values().min().unwrap(), owned.values().max().unwrap());
        assert!(most - least <= 1, "{hosts} hosts, {count} leases: {least} to {most} each");
    }
}

#[test]
fn one_host_more_changes_few_shares_of_free_leases() {
    let tokens: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    let hosts: Vec<String> = (0..500).map(name).collect();
    let divided = |hosts: &[String], room: usize| {
        let rooms: Vec<_> = hosts.iter().map(|host| (host.as_str(), room)).collect();
        free_shares::divide(tokens.iter().map(String::as_str), &rooms)
    };
    // Hosts of a fleet that starts see some of the others, and not quite the same.
    let (all, but_one) = (divided(&hosts, 10), divided(&hosts[..499], 11));
    let same = all.iter().zip(&but_one).filter(|(one, other)| one == other).count();
    assert!(same > 3000, "only {same} of 5,000 stay with their host");
    assert!(all.iter().all(Option::is_some));
    assert_eq!(divided(&hosts[..10], 3).iter().flatten().count(), 30, "no host gets more than it has room for");
}
